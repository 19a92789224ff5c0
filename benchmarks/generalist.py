"""One rule for all logs: search it on models, and compare that of the package with `wise` on logs: fill a table of docs/results.md.

python benchmarks/generalist.py search [NAME ...]        five minutes each; writes the rules to benchmarks/results/generalist
python benchmarks/generalist.py choose                   validation days of SDSC, under `wise`, that of the package and what was found
python benchmarks/generalist.py compare [LOG ...]        `wise` and that of the package on the report days of the logs

Models know no users, so orders go by runtimes with noise (`noisy:1.0`) in place of predictions. Requests are runtimes divided by a
uniform random number, as users overestimate (Mu'alem & Feitelson, 2001). Machines and loads change from generation to generation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from learn import MORE_LOGS
from render_performance import RESULTS, Results, fill, table
from wise import LOGS, PAGE, TRACES, percent

from queuewise import load_cluster, load_workload
from queuewise.cli.console import note
from queuewise.cluster.conditions import PERFECT
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.policies.found_rules import NUMBERS, SEARCHED, FoundRule, rule_text
from queuewise.policies.window_replays import ReplayOptions
from queuewise.report.readable import duration
from queuewise.runs import write_text
from queuewise.search.beginnings import FITTING_FIRST
from queuewise.search.block_verdicts import verdicts_on
from queuewise.search.evolution import Journal, SearchSettings, search
from queuewise.search.stretches import Figures, Stretch, Stretches
from queuewise.workload.estimates import default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ReadOptions
from queuewise.workload.models import generate
from queuewise.workload.transform import offered_load

FOLDER = RESULTS / "generalist"
MACHINES = {  # model, cluster
    "generalist-hpc": (("lublin", "flat:256"), ("lublin", "flat:128"), ("lublin", "flat:512")),
    "generalist-gpu": (("bench", "16x8:V100-16"), ("poisson", "4x8:V100-16"), ("bursty", "2x8:V100-16"), ("hetero", "hetero56")),
}
LOADS = (0.75, 0.85, 0.95)
JOBS, STRETCH = 12_000, 3_000
NOISE = "noisy:1.0"
OTHERS = ("wise", "fcfs+easy", "saf:predicted+easy:sjf:predicted~3d", "sjf+easy")
SEARCHED_RULE = "searched on models"
KNOWN = {"generalist-hpc": ("KTH", "CTC", "HPC2N"), "generalist-gpu": ("Venus", "Philly")}


def workload_at(model: str, cluster: str, load: float, seed: int) -> Workload:
    """Jobs of a model at a load of the cluster, with requests."""
    jobs = generate(model, JOBS, seed)
    machine = load_cluster(cluster)
    jobs = jobs.take(np.flatnonzero(jobs.size <= (machine.num_gpus or machine.num_cores)))
    amount = {"gpus": machine.num_gpus} if machine.num_gpus else {"cores": machine.num_cores}
    share = np.random.default_rng(seed).uniform(0.05, 1.0, len(jobs))
    first = jobs.submit[0]
    return jobs.replace(submit=first + (jobs.submit - first) * (offered_load(jobs, **amount) / load), requested=jobs.runtime / share)


class ManyStretches:
    """Stretches of several workloads on several machines, drawn one after the other."""

    def __init__(self, members: list[Stretches]) -> None:
        self._members, self._of = members, {}  # type: ignore[var-annotated]

    def draw(self, rng: np.random.Generator, most_jobs: int, *, varies: bool = False) -> Stretch:
        member = self._members[int(rng.integers(len(self._members)))]
        stretch = member.draw(rng, most_jobs, varies=varies)
        self._of[stretch] = member
        return stretch

    def replay(self, rules: list[FoundRule | str], stretch: Stretch) -> Figures:
        figures: Figures = self._of[stretch].replay(rules, stretch)
        return figures


def search_rule(kind: str, minutes: float, seed: int) -> FoundRule:
    options = ReplayOptions("reorder", "requested", 0, False, PERFECT)
    members = []
    for number, (model, cluster) in enumerate(MACHINES[kind]):
        for place, load in enumerate(LOADS):
            jobs = workload_at(model, cluster, load, 1000 + 10 * number + place)
            members.append(Stretches(jobs, load_cluster(cluster), range(len(jobs)), options))
    beginning = FoundRule(tuple(FITTING_FIRST.get(name, 0.0) for name in NUMBERS), NOISE, f"+easy:sjf:{NOISE}~3d", "requested")
    settings = SearchSettings({"bsld": 1.0, "wait": 1.0}, SEARCHED, stretch_jobs=STRETCH, seed=seed)
    until, found = time.monotonic() + 60 * minutes, beginning
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", {}, settings.population)
        reference = f"aged:{NOISE}+easy:sjf:{NOISE}~3d"  # as wise, if its predictions were these
        for one in search(ManyStretches(members), beginning, [reference], settings, journal, lambda: time.monotonic() > until):  # type: ignore[arg-type]
            found = one.rule
            if one.number % 10 == 0:
                note(f"{kind}, generation {one.number}: cost {one.cost:+.3f}, {found.formula}")
    return replace(found, order_estimates="predicted", scheduling="+easy:sjf:predicted~3d", estimates="")


def read_log(log: str) -> Workload:
    path = TRACES / (LOGS | MORE_LOGS)[log][0]
    return load_workload(path, options=ReadOptions(processors="requested", clean=True) if ".swf" in path.name else None).workload


def compare_on(log: str, policies: list[str], block: str) -> dict[str, Any]:
    """The figures of policies, and how each differs from `wise`, which is the first."""
    workload = read_log(log)
    settings = ReplaySettings(estimates=default_estimates(workload))
    found = verdicts_on(workload, load_cluster((LOGS | MORE_LOGS)[log][1]), policies, settings, block, shakes=8)
    rows: dict[str, Any] = {}
    for policy in policies:
        rows[policy] = {"max_wait_s": found.max_wait(policy)}
        for score in ("bsld", "wait"):
            diff, ci95 = found.percent(policy, policies[0], score)
            rows[policy][score] = {"mean": found.mean(policy, score), "percent": [diff, *(ci95 or (diff, diff))]}
    return rows


def generalists(results: Results) -> str:
    rows = []
    for log, policies in results["generalists"].items():
        for place, (policy, row) in enumerate(policies.items()):
            cells = [cell for score in ("bsld", "wait") for cell in (
                f"{row[score]['mean']:.1f}" if score == "bsld" else duration(row[score]["mean"]),
                percent(row[score]["percent"]) if place else "",
            )]  # fmt: skip
            rows.append([log if place == 0 else "", f"`{policy}`", *cells, duration(row["max_wait_s"])])
    return table(["log", "policy", "mean bsld", "against `wise`", "mean wait", "against `wise`", "longest wait"], rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("search", "choose", "compare"))
    parser.add_argument("names", nargs="*", help="of rules to search, or of logs")
    parser.add_argument("--minutes", type=float, default=5.0, help="of search, per rule, %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the search")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    searched = {kind: FOLDER / kind / "rule.toml" for kind in MACHINES}
    if arguments.step == "search":
        for kind in arguments.names or MACHINES:
            path = searched[kind]
            path.parent.mkdir(exist_ok=True)
            rule = search_rule(kind, arguments.minutes, arguments.seed)
            write_text(path, rule_text(rule, {"found on": ", ".join(f"{model} on {cluster}" for model, cluster in MACHINES[kind])}))
            note(f"{kind}: {rule.describe()}")
        return
    kinds = {log: kind for kind, logs in KNOWN.items() for log in logs} | {"SDSC": "generalist-hpc"}
    file = FOLDER / f"{arguments.step}.json"
    made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    choosing = arguments.step == "choose"
    for log in ["SDSC"] if choosing else arguments.names or [log for logs in KNOWN.values() for log in logs]:
        searched_rule = f"model:{FOLDER / kinds[log]}"
        policies = [*OTHERS, f"model:{kinds[log]}", *([searched_rule] if choosing else [])]
        made[log] = compare_on(log, policies, "val" if choosing else "report")
        made[log] = {SEARCHED_RULE if policy == searched_rule else policy: row for policy, row in made[log].items()}
        note(f"{log}: {[(policy, row['bsld']['mean'], row['wait']['mean']) for policy, row in made[log].items()]}")
        write_text(file, json.dumps(made, indent=1) + "\n")
    if arguments.step == "compare":
        write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"generalists": made}, {"generalists": generalists}))


if __name__ == "__main__":
    main()
