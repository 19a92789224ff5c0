"""What `queuewise report` needs for a replay of many jobs; writes benchmarks/results/report_size.json.

    python benchmarks/report_size.py                                  a million jobs, about a minute
    python benchmarks/report_size.py --jobs 100000 --results FOLDER   smaller than published, to try it out

The replay is that of the model `bench` under fcfs+easy. Seconds are those of the processor, memory is the peak of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from queuewise.cli import bench
from queuewise.runs import write_text

RESULTS = Path(__file__).resolve().parent / "results"
COMMAND = [sys.executable, "-m", "queuewise"]
POLICY = "fcfs+easy"


def report(run: Path) -> dict[str, float]:
    """Processor seconds and peak memory of one report, and the size of its page."""
    process = subprocess.Popen([*COMMAND, "report", str(run)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)  # what this one process used
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"queuewise report {run} failed")
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_memory_mib": used.ru_maxrss / 1024,
        "page_mib": (run / "report.html").stat().st_size / 2**20,
        "trace_mib": (run / POLICY / "trace.json.gz").stat().st_size / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="%(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args()
    machine = bench.describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        inputs = ["--workload", "bench", "--jobs", str(options.jobs), "--cluster", "250x8:V100-16", "--policy", POLICY]
        subprocess.run([*COMMAND, "simulate", *inputs, "--out", str(run)], stdout=subprocess.DEVNULL, check=True)
        figures = min((report(run) for _ in range(3)), key=lambda row: row["cpu_s"])
    options.results.mkdir(parents=True, exist_ok=True)
    write_text(options.results / "report_size.json", json.dumps({"machine": machine, "jobs": options.jobs, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
