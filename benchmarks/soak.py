"""Random commands, kills, full disks and damaged files; and memory over many resets and replays in one process.

    python benchmarks/soak.py --minutes 60 --seed 0 --out FOLDER      commands; the same again continues where it stopped
    python benchmarks/soak.py resets --times 1000000                  resets of an environment in one process
    python benchmarks/soak.py simulations --times 10000               replays in one process

A round of `commands` is one action of `soak_rounds.ROUNDS` with a random part of its own, which depends on the seed and the number of the
round. FOLDER/rounds.jsonl has a line per round, and problems keep their folder. `resets` and `simulations` fail if memory is not flat
(`soak_memory`). The exit code is 1 if anything failed. Each part writes its figures to benchmarks/results/soak.json (--results).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from soak_memory import soak_resets, soak_simulations
from soak_processes import running_time
from soak_rounds import REPOSITORY, ROUNDS, Soak

from queuewise.cli import bench
from queuewise.runs import write_text

RESULTS = Path(__file__).resolve().parent / "results"
TIMES = {"resets": 1_000_000, "simulations": 10_000}


def soak_commands(home: Path, seed: int, minutes: float, rounds: int | None) -> dict[str, Any]:
    """Rounds until the time is over, those of earlier calls included. Returns how many there were, and how many had problems."""
    home.mkdir(parents=True, exist_ok=True)
    table = home / "rounds.jsonl"
    past = [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []
    if any(row["seed"] != seed for row in past):
        raise SystemExit(f"{table} has rounds of another seed; use another folder")
    spent = sum(row["seconds"] for row in past)
    while spent < 60 * minutes and (rounds is None or len(past) < rounds):
        past.append(_round(home, seed, len(past)))
        spent += past[-1]["seconds"]
        with table.open("a") as file:
            file.write(json.dumps(past[-1]) + "\n")
    bad, actions = sum(bool(row["problems"]) for row in past), dict(Counter(row["action"] for row in past))
    print(f"{len(past)} rounds in {spent / 60:.1f} minutes, {bad} with problems; {actions}")
    return {"rounds": len(past), "minutes": round(spent / 60, 1), "seed": seed, "with_problems": bad, "actions": actions}


def _round(home: Path, seed: int, number: int) -> dict[str, Any]:
    rng = random.Random(f"{seed} {number}")
    soak, action = Soak(home, seed), rng.choice(ROUNDS)
    folder = home / f"round-{number:05d}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = running_time()
    what = action(soak, rng, folder)
    seconds = running_time() - begin
    print(f"{number:5d} {seconds:6.1f} s  {action.__name__}: {what}" + "".join(f"\n      PROBLEM {p}" for p in soak.problems), flush=True)
    if not soak.problems:
        shutil.rmtree(folder)
    return {"seed": seed, "round": number, "action": action.__name__, "what": what, "seconds": seconds, "problems": soak.problems}


def as_list(known: dict[str, Any]) -> str:
    """The figures of all parts, as docs/reliability.md has them."""
    rows = []
    for figures in known.values():
        if "rounds" in figures:
            said = f"{figures['rounds']:,} rounds in {figures['minutes']:g} minutes, {figures['with_problems'] or 'none'} with problems"
        else:
            kept = "flat" if figures["flat"] else "not flat"
            said = f"{figures['times']:,} times, {kept} at {figures['memory_mib']:g} MiB, the line rises by {figures['rise_mib']:.1f} MiB"
        rows.append(f"- `{figures['command']}` (commit {figures['commit']}):\n  {said}")
    return "\n".join(rows)


def write_figures(folder: Path, part: str, figures: dict[str, Any]) -> None:
    """Write the figures of one part to soak.json; those of the others stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "soak.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    known[part] = figures | {"commit": commit.stdout.strip(), "machine": bench.describe_machine()}
    known = dict(sorted(known.items()))
    write_text(path, json.dumps(known, indent=1) + "\n")
    print(as_list(known))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="commands", choices=("commands", *TIMES))
    parser.add_argument("--minutes", type=float, default=60.0, help="of commands, %(default)g")
    parser.add_argument("--rounds", type=int, help="of commands at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="folder of commands, %(default)s")
    parser.add_argument("--times", type=int, help="resets (a million) or simulations (10,000)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args()
    if options.part == "commands":
        figures = soak_commands(options.out.resolve(), options.seed, options.minutes, options.rounds)
        command, failed = f"--minutes {options.minutes:g} --seed {options.seed}", figures["with_problems"] > 0
    else:
        times = options.times or TIMES[options.part]
        figures = (soak_resets if options.part == "resets" else soak_simulations)(times)
        command, failed = f"{options.part} --times {times}", not figures["flat"]
    write_figures(options.results, options.part, {"command": f"python benchmarks/soak.py {command}", **figures})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
