"""Ways to find a policy, side by side at equal processor time: fill a table of docs/results.md.

python benchmarks/methods.py [METHOD ...] [--minutes 4]     reads ../shared/traces, or where QUEUEWISE_TRACES says

On the training days of KTH with what a scheduler knows (`requested`), each given the same processor minutes: CMA-ES over the numbers of a
rule; CMA-ES over the weights of a small network that is added to the score of `wise`; half of the time for the former, then the latter on
top of what it found; PPO that names the head of the queue, after imitating `wise`. All begin with `wise`. What they find is compared with
`wise` on the validation days, by eight shaken replays. The report days are not looked at.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from generalist import compare_on, read_log
from render_performance import RESULTS, Results, fill, table
from wise import LOGS, PAGE, TRACES, percent

from queuewise import load_cluster
from queuewise.cli.console import note
from queuewise.cluster.conditions import PERFECT
from queuewise.evaluation.protocol import DEFAULT_SPLIT, block_jobs
from queuewise.policies.found_rules import NUMBERS, SEARCHED, FoundRule, rule_text
from queuewise.policies.window_replays import ReplayOptions
from queuewise.report.readable import duration
from queuewise.runs import write_text
from queuewise.search.beginnings import beginnings
from queuewise.search.evolution import Journal, SearchSettings, cost_of, search
from queuewise.search.stretches import Stretches

FILE = RESULTS / "methods.json"
HOME = Path("runs/benchmark-methods")
LOG, OBJECTIVE, STRETCH = "KTH", {"bsld": 1.0, "wait": 1.0}, 8_000
POPULATION, UNITS, INPUTS = 16, 8, 7
WEIGHTS = UNITS * (INPUTS + 2)  # of a unit: its inputs, its bias and what it adds to the score
SCHEDULING = ":predicted+easy:sjf:predicted~3d"
NETWORK = '''"""The score of a rule, plus what a network of one hidden layer makes of the same and a few more figures."""

import math

UNITS, INPUTS = {units}, {inputs}
PARAMS = {params!r}


def score(job, now, cluster, params):
    runtime = math.log(max(job.estimate, 1.0)) - math.log(3600.0)
    width = math.log(max(job.width, 0.001))
    waited = max(now - job.submit, 0.0)
    missing = max(job.width - cluster.free_cores, 0.0) / cluster.cores
    share = job.width / cluster.cores
    blocked = 1.0 if missing > 0.0 else 0.0
    free = cluster.free_cores / cluster.cores
    age = math.log1p(waited / 3600.0)
    patience = math.log1p(waited / max(job.estimate, 1.0))
    total = {rule}
    for unit in range(UNITS):
        at = unit * (INPUTS + 2)
        inside = params[at] * runtime + params[at + 1] * width + params[at + 2] * age + params[at + 3] * patience
        inside += params[at + 4] * missing + params[at + 5] * blocked + params[at + 6] * free + params[at + 7]
        total += params[at + 8] * math.tanh(inside)
    return total
'''
RULE = (
    "{log_runtime!r} * runtime + {log_width!r} * width + {log_runtime_squared!r} * runtime**2 + {log_width_squared!r} * width**2"
    " + {log_runtime_log_width!r} * runtime * width + share * ({share!r} + {share_log_runtime!r} * runtime)"
    " - {age!r} * math.log1p(waited / (3600.0 * math.exp({log_age_hours!r}))) + {blocked!r} * blocked + {blocked_share!r} * missing"
)


@dataclass(frozen=True)
class NetworkPolicy:
    """A file with the network, and its weights."""

    file: Path
    numbers: tuple[float, ...]

    @property
    def policy(self) -> str:
        return f"{self.file}:score{SCHEDULING}"


def stretches() -> Stretches:
    workload = read_log(LOG)
    return Stretches(
        workload,
        load_cluster(LOGS[LOG][1]),
        block_jobs(workload, DEFAULT_SPLIT)["train"],
        ReplayOptions("reorder", "requested", 0, False, PERFECT),
    )


def timer(minutes: float) -> Callable[[], bool]:
    until = time.process_time() + 60 * minutes
    return lambda: time.process_time() > until


def first_rule() -> FoundRule:
    return next(rule for rule in beginnings("requested"))


def search_rule(minutes: float, home: Path) -> FoundRule:
    settings = SearchSettings(OBJECTIVE, SEARCHED, POPULATION, STRETCH)
    (home / "search.jsonl").unlink(missing_ok=True)
    found = first_rule()
    for one in search(stretches(), found, ["wise"], settings, Journal(home / "search.jsonl", {}, POPULATION), timer(minutes)):
        found = one.rule
    note(f"rule: {one.number} generations, {found.formula}")
    return replace(found, estimates="requested")


def search_network(rule: FoundRule, minutes: float, home: Path) -> NetworkPolicy:
    """Weights by CMA-ES with a diagonal covariance, on a fresh stretch in every generation. At first the network adds nothing."""
    import cma

    rng = np.random.default_rng(0)
    origin = rng.normal(0.0, 0.5, (UNITS, INPUTS + 2))
    origin[:, -1] = 0.0
    steps = np.full_like(origin, 0.5)
    steps[:, -1] = 0.2
    write_network(home, rule, [0.0] * WEIGHTS)
    train, reached = stretches(), timer(minutes)
    strategy = cma.CMAEvolutionStrategy(np.zeros(WEIGHTS), 0.3, {"popsize": POPULATION, "seed": 1, "verbose": -9, "CMA_diagonal": True})
    generations = 0
    while not reached():
        points = strategy.ask()
        stretch = train.draw(rng, STRETCH, varies=True)
        candidates = [NetworkPolicy(home / "network.py", tuple((origin + steps * point.reshape(origin.shape)).ravel())) for point in points]
        strategy.tell(points, cost_of(train.replay([*candidates, "wise"], stretch), OBJECTIVE, 1).tolist())
        generations += 1
    note(f"network: {generations} generations")
    best = (origin + steps * strategy.result.xfavorite.reshape(origin.shape)).ravel()
    write_network(home, rule, best.tolist())
    return NetworkPolicy(home / "network.py", tuple(best))


def write_network(home: Path, rule: FoundRule, weights: list[float]) -> None:
    text = RULE.format(**dict(zip(NUMBERS, rule.numbers, strict=True)))
    write_text(home / "network.py", NETWORK.format(units=UNITS, inputs=INPUTS, params=weights, rule=text))


def rule_alone(minutes: float, home: Path) -> str:
    write_text(home / "rule.toml", rule_text(search_rule(minutes, home), {}))
    return f"model:{home}"


def network_alone(minutes: float, home: Path) -> str:
    return search_network(first_rule(), minutes, home).policy


def rule_then_network(minutes: float, home: Path) -> str:
    return search_network(search_rule(minutes / 2, home), minutes / 2, home).policy


def ppo(minutes: float, home: Path) -> str:
    """In steps of frames, as many as the time allows."""
    spent, frames = 0.0, 0
    task = ["--task.dispatch", "head", "--task.baseline", "wise", "--task.reward", "bounded_slowdown/jobs/baseline"]
    reading = ["--workload", str(TRACES / LOGS[LOG][0]), "--processors", "requested", "--clean", "--cluster", LOGS[LOG][1]]
    while spent < 60 * minutes:
        frames = 131_072 if not frames else min(int(frames * 60 * minutes / spent * 1.05), 4 * frames)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["train", *reading, *task, "--ppo.imitate", "wise", "--frames", str(frames), "--seeds", "0", "--out", str(home)]
        subprocess.run([sys.executable, "-m", "queuewise", *command], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        note(f"ppo: {frames} frames, {spent:.0f} s of processor time")
        home = home.with_name(f"{home.name}-more") if spent < 60 * minutes else home
    return f"model:{home}"


METHODS: dict[str, Callable[[float, Path], str]] = {
    "rule": rule_alone, "network": network_alone, "rule, then network": rule_then_network, "PPO": ppo,
}  # fmt: skip


def methods(results: Results) -> str:
    rows = []
    for name, row in results["methods"].items():
        cells = [cell for score in ("bsld", "wait") for cell in (
            f"{row[score]['mean']:.1f}" if score == "bsld" else duration(row[score]["mean"]),
            "" if name == "wise" else percent(row[score]["percent"]),
        )]  # fmt: skip
        rows.append([name, *cells, duration(row["max_wait_s"]), "" if name == "wise" else f"{row['minutes']:g}"])
    return table(
        ["what was searched", "mean bsld", "against `wise`", "mean wait", "against `wise`", "longest wait", "minutes"], rows, left=1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(METHODS)}; all by default")
    parser.add_argument("--minutes", type=float, default=4.0, help="of processor time, per method, %(default)s")
    arguments = parser.parse_args()
    made: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in arguments.methods or METHODS:
        if name not in METHODS:
            parser.error(f"{name!r} is none of {', '.join(METHODS)}")
        home = HOME / name.replace(", ", "-").replace(" ", "-").lower()
        home.mkdir(parents=True, exist_ok=True)
        policy = METHODS[name](arguments.minutes, home)
        rows = compare_on(LOG, ["wise", policy], "val")
        made |= {"wise": rows["wise"], name: rows[policy] | {"minutes": arguments.minutes}}
        note(f"{name}: {rows[policy]['bsld']}, {rows[policy]['wait']}")
        write_text(FILE, json.dumps(made, indent=1) + "\n")
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"methods": made}, {"methods": methods}))


if __name__ == "__main__":
    main()
