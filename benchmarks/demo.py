"""`scripts/demo` in a fresh clone with a new HOME and no packages, some times; written to benchmarks/results/demo.json.

    python benchmarks/demo.py                            three runs, about a minute each; needs the package index of pip
    python benchmarks/demo.py --runs 1 --results /tmp    quicker, to try it out

What is committed is cloned. Seconds: installation is that of `scripts/setup demo`, and replays and picture those of the demo once
everything is compiled; compilation is what the first demo takes longer. Together they are what `scripts/demo` takes from nothing.
`python benchmarks/render_performance.py` then brings docs/performance.md up to date.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.runs import write_text

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
OF_THE_CALLER = ("PYTHONPATH", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "QUEUEWISE_CACHE_DIR", "NUMBA_CACHE_DIR", "VIRTUAL_ENV")


def measure(folder: Path) -> dict[str, Any]:
    """One run from nothing in an empty folder."""
    clone, home = folder / "queuewise", folder / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in OF_THE_CALLER} | {"HOME": str(home)}
    install_s = _seconds(["scripts/setup", "demo"], clone, environment)
    first_s = _seconds(["scripts/demo"], clone, environment)
    replay_s = _seconds(["scripts/demo"], clone, environment)
    return {
        "install_s": install_s, "compile_s": first_s - replay_s, "replay_s": replay_s, "total_s": install_s + first_s,
        "venv_mib": _mib(clone / ".venv"), "disk_mib": _mib(folder),
    }  # fmt: skip


def _seconds(command: list[str], folder: Path, environment: Mapping[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _mib(folder: Path) -> float:
    """What a folder takes on the disk."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*")) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="%(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args()
    machine, runs = bench.describe_machine(), []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(Path(folder)))
        note(json.dumps(runs[-1]))
    options.results.mkdir(parents=True, exist_ok=True)
    write_text(options.results / "demo.json", json.dumps({"machine": machine, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
