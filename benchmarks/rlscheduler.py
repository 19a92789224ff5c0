"""RLScheduler's own comparison, with rules that were found elsewhere: python benchmarks/rlscheduler.py [--minutes 3]

Ten sequences of 1,024 jobs per log, on an empty machine, runtimes as requested (exact ones on the Lublin logs, which have no requests); a
chosen job keeps its place until it starts (`--protocol rlscheduler`). Without backfill, and with that of the paper
(`+easy-strict:fcfs`). Rules are searched (CMA-ES) on sequences that share no job with those: of the `lublin` model for Lublin-1 and
Lublin-2, and of the same log for HPC2N, from job 20,000 on. The published values are those of the paper's table (Zhang et al., SC 2020).
Results are in benchmarks/results/rlscheduler.json, and what is there is not made again; the table is in docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import cma
import numpy as np
from render_performance import RESULTS, Results, fill, table
from wise import PAGE, TRACES

from queuewise import load_cluster
from queuewise.cli.console import note
from queuewise.cluster.conditions import PERFECT
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.measure import BOUND_S
from queuewise.evaluation.protocol import make_plan
from queuewise.policies import simulate
from queuewise.policies.found_rules import BLOCKED_NUMBERS, NUMBERS, ORDER_NUMBERS, FoundRule, rule_text
from queuewise.policies.window_replays import Candidate, ReplayOptions, WindowRows, replay_windows
from queuewise.runs import write_text
from queuewise.search.evolution import BOUNDED_BELOW, PULL, STEPS
from queuewise.sim.core.schedule import Schedule
from queuewise.workload import load_workload
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models import generate

FILE = RESULTS / "rlscheduler.json"
ORDERS = ("fcfs", "sjf", "f1", "saf")
SPREAD = 0.5  # of the first candidates
LOGS = {  # file, cluster, published: RL without and with backfill
    "Lublin-1": ("lublin_256.swf.gz", "flat:256", (254.67, 58.64)),
    "Lublin-2": ("lublin_256_new2.swf.gz", "flat:256", (724.51, 118.79)),
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", "flat:240", (117.01, 86.14)),
}
BACKFILLS = ("", "+easy-strict:fcfs")
TUNED = (*ORDER_NUMBERS, *BLOCKED_NUMBERS)
LENGTH, POPULATION, SEQUENCES = 1024, 16, 24  # jobs of a sequence, rules and sequences of a generation


class Sequences:
    """Training sequences and the mean bounded slowdown of rules on them."""

    def __init__(self, jobs: Workload, first: int, cluster: str, estimates: str) -> None:
        self._jobs, self._first, self._cluster, self.estimates = jobs, first, load_cluster(cluster), estimates

    def scores(self, rules: list[FoundRule], rng: np.random.Generator) -> Floats:
        """[K, SEQUENCES] on random sequences."""
        starts = rng.integers(self._first, len(self._jobs) - LENGTH, SEQUENCES)
        windows = [WindowRows(np.arange(start, start + LENGTH), slice(0, LENGTH)) for start in starts]
        found = np.zeros((len(rules), SEQUENCES))

        def note(one: Candidate, number: int, schedule: Schedule) -> None:
            found[one.number, number] = mean_slowdown(schedule)

        options = ReplayOptions("commit", self.estimates, 0, False, PERFECT)
        candidates = [Candidate(number, rule.policy, rule.numbers) for number, rule in enumerate(rules)]
        replay_windows(self._jobs, self._cluster, candidates, windows, options, len(os.sched_getaffinity(0)), note)
        return found


def mean_slowdown(schedule: Schedule) -> float:
    waits, runtime = schedule.start - schedule.workload.submit, schedule.workload.runtime
    return float(np.nanmean(np.maximum((waits + runtime) / np.maximum(runtime, BOUND_S), 1.0)))


def search(sequences: Sequences, backfill: str, seconds: float, seed: int) -> tuple[FoundRule, int]:
    """The rule that was found, and after how many generations."""
    start = {"log_runtime": 1.0, "log_width": 0.5}
    reference = FoundRule(tuple(float(name == "log_runtime") for name in NUMBERS), scheduling=backfill, estimates=sequences.estimates)
    places, steps = [NUMBERS.index(name) for name in TUNED], np.array([STEPS[name] for name in TUNED])
    origin = np.array([start.get(name, 0.0) for name in NUMBERS])
    lower = [-origin[place] / STEPS[name] if name in BOUNDED_BELOW else None for name, place in zip(TUNED, places, strict=True)]
    strategy = cma.CMAEvolutionStrategy(
        np.zeros(len(TUNED)), SPREAD, {"popsize": POPULATION, "seed": seed + 1, "verbose": -9, "bounds": [lower, None]}
    )
    rng, until, generations = np.random.default_rng(seed), time.monotonic() + seconds, 0

    def rule_at(point: Floats) -> FoundRule:
        numbers = origin.copy()
        numbers[places] += steps * point
        return replace(reference, numbers=tuple(map(float, numbers)))

    while generations == 0 or time.monotonic() < until:
        points = strategy.ask()
        scores = sequences.scores([*map(rule_at, points), reference], rng)
        costs = (np.log(scores[:-1] / scores[-1]).mean(axis=1) + np.log(scores[:-1].mean(axis=1) / scores[-1].mean())) / 2
        strategy.tell(points, (costs + PULL * np.square(points).sum(axis=1)).tolist())
        generations += 1
    return rule_at(strategy.result.xfavorite), generations


def published_mean(log: str, policies: list[str]) -> dict[str, float]:
    """Mean bounded slowdowns under the rules of the paper."""
    workload = load_workload(TRACES / "swf" / LOGS[log][0]).workload
    plan = make_plan("rlscheduler", workload)
    settings = ReplaySettings(dispatch=plan.dispatch or "", estimates=plan.estimates or "")
    cells = run_experiment(Experiment(workload, load_cluster(LOGS[log][1]), plan, settings), policies, simulate)
    values = {policy: [float(cell.scores["bsld"] or np.nan) for cell in cells if cell.policy == policy] for policy in policies}
    return {policy: float(np.mean(found)) for policy, found in values.items()}


def run(log: str, place: int, seed: int, minutes: float) -> dict[str, Any]:
    """Search one rule, and compare it on the published sequences."""
    file, cluster, published = LOGS[log]
    backfill = BACKFILLS[place]
    jobs, first = (load_workload(TRACES / "swf" / file).workload, 20_000) if log == "HPC2N" else (generate("lublin", 60_000, 77), 0)
    estimates = "requested" if log == "HPC2N" else "oracle"
    rule, generations = search(Sequences(jobs, first, cluster, estimates), backfill, 60 * minutes, seed)
    home = Path("runs/rlscheduler") / f"{log}{'-backfilled' if backfill else ''}-{seed}"
    home.mkdir(parents=True, exist_ok=True)
    (home / "rule.toml").write_text(rule_text(rule, {"found for": f"{log}{backfill}"}), encoding="utf-8")
    scores = published_mean(log, [f"model:{home}", *(f"{order}{backfill}" for order in ORDERS)])
    found, *others = scores.values()
    return {"log": log, "backfill": backfill, "seed": seed, "minutes": minutes, "generations": generations,
            "published_rl": published[place], "found": found, **dict(zip(ORDERS, others, strict=True)), "rule": asdict(rule)}  # fmt: skip


def rlscheduler(results: Results) -> str:
    columns = ["log", "backfill", "seed", "rule found", "published RL", *(f"`{order}`" for order in ORDERS)]
    rows = [
        [one["log"], f"`{one['backfill']}`" if one["backfill"] else "none", f"{one['seed']}", f"{one['found']:.2f}",
         f"{one['published_rl']:.2f}", *(f"{one[order]:.2f}" for order in ORDERS)]
        for one in results["rlscheduler"].values()
    ]  # fmt: skip
    return table(columns, rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="of search, per rule, %(default)s")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="of the search")
    parser.add_argument("--logs", nargs="*", default=list(LOGS))
    arguments = parser.parse_args()
    made: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for log, place, seed in product(arguments.logs, range(len(BACKFILLS)), arguments.seeds):
        name = f"{log}{BACKFILLS[place]}-{seed}"
        if name not in made:
            made[name] = run(log, place, seed, arguments.minutes)
            note(f"{name}: found {made[name]['found']:.2f}, published RL {made[name]['published_rl']:.2f}")
            write_text(FILE, json.dumps(made, indent=1) + "\n")
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"rlscheduler": made}, {"rlscheduler": rlscheduler}))


if __name__ == "__main__":
    main()
