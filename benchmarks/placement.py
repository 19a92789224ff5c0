"""Measure placement rules: solve times of `@milp`, packing curves on openb, the published 16 nodes. Fill the tables of docs/placement.md.

python benchmarks/placement.py [times] [packing] [sixteen] [search] [render]     reads ../shared/traces, or where QUEUEWISE_TRACES says

Parts and rows that are in benchmarks/results/placement.json are not measured again; remove them there to do so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cma
import numpy as np
from render_performance import REPOSITORY, RESULTS, Results, fill, table

from queuewise import load_cluster, load_workload, simulate
from queuewise.cli.console import note
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.evaluation.measure import measure
from queuewise.evaluation.packing import allocated_at_first_failure, arrive_and_stay, packing_curve
from queuewise.evaluation.replay_files import to_json
from queuewise.policies.known import Jobs
from queuewise.policies.names import parse_policy
from queuewise.runs import write_text
from queuewise.sim.core import engine
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.dependencies import NO_DEPENDENCIES
from queuewise.workload.jobs import COLUMNS, Workload

PAGE = REPOSITORY / "docs" / "placement.md"
FILE = RESULTS / "placement.json"
TRACES = Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces")
OPENB = TRACES / "alibaba" / "openb_pod_list_gpuspec33.csv"
DEFAULT_PODS = TRACES / "alibaba" / "openb_pod_list_default.csv"
VENUS = TRACES / "helios" / "venus_gpu_jobs_2020-03-18_to_07-31.csv.gz"
SEARCHED = "examples/policies/packing.py:fitting_node"
RULES = ("first", "pack", "spread", "fgd", "tier", "milp", "milp:fgd-full", SEARCHED)
ALLOCATED = (0.6, 0.9)  # share of the GPUs at which decisions count
DECISIONS = 2000
LOAD = 0.8


def busy_cluster(workload: Workload, cluster: Cluster, num: int, seed: int) -> Workload:
    """Jobs with the demands of a log that come and go, so that about LOAD of the GPUs are in use."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.flatnonzero(workload.gpu_milli > 0), num)
    runtime = rng.lognormal(7.0, 1.0, num)
    gap = float((workload.gpus[rows] * runtime).mean()) / (LOAD * cluster.num_gpus)
    columns = {column: getattr(workload, column)[rows] for column in COLUMNS}
    columns |= {name: np.full(num, np.nan) for name in ("requested", "recorded_wait", "deadline")}
    columns |= {"submit": np.cumsum(rng.exponential(gap, num)), "runtime": runtime, "job_id": np.arange(num)}
    return workload.replace(**columns, epoch=0.0, dependencies=NO_DEPENDENCIES)


def drawn_nodes(cluster: Cluster, num: int) -> Cluster:
    """So many nodes of the cluster, drawn with replacement."""
    rng = np.random.default_rng(0)
    groups = []
    for n in np.sort(rng.integers(0, cluster.num_nodes, num)).tolist():
        kind = cluster.kinds[cluster.node_kind[n]].name if cluster.node_gpus[n] else ""
        cores, memory = float(cluster.node_cpu_milli[n]) / 1000, float(cluster.node_mem_mib[n]) / 1024
        groups.append(NodeGroup(1, gpus=int(cluster.node_gpus[n]), kind=kind, cpus=cores, mem_gib=memory))
    return build(f"{cluster.name}-{num}", groups)


def solve_times(workload: Workload, cluster: Cluster, placement: str) -> dict[str, Any]:
    """Wall-clock and processor time of the decisions at which ALLOCATED of the GPUs are in use."""
    found: dict[str, list[float]] = {"wall": [], "cpu": [], "gap": []}
    fallbacks = seed = 0
    while len(found["wall"]) < DECISIONS:
        seed += 1
        jobs = busy_cluster(workload, cluster, 4000, seed)
        policy = parse_policy(f"fcfs+greedy@{placement}")
        rules = policy.rules(Jobs.of(jobs, jobs.runtime, cluster=cluster), "reorder")
        solver: Any = rules.solver
        rows: list[tuple[float, float, int]] = []
        solver.place = _timed(solver, rows)
        schedule = engine.simulate(jobs, cluster, rules, estimate=jobs.runtime)
        counted = np.flatnonzero(_counted(schedule))
        assert len(rows) == len(solver.statistics.gaps)
        found["wall"] += [rows[i][0] for i in counted]
        found["cpu"] += [rows[i][1] for i in counted]
        found["gap"] += [solver.statistics.gaps[i] for i in counted]
        fallbacks += sum(rows[i][2] for i in counted)
    summary: dict[str, Any] = {
        "decisions": len(found["wall"]),
        "nodes": cluster.num_nodes,
        "fallbacks": fallbacks,
        "load": os.getloadavg()[0],
    }
    for name in ("wall", "cpu"):
        times = np.array(found[name])
        summary[name] = {
            "mean": float(times.mean()),
            **{f"p{q}": float(np.percentile(times, q)) for q in (50, 90, 99)},
            "max": float(times.max()),
        }
    return summary | {"gap_mean": float(np.mean(found["gap"])), "gap_max": float(np.max(found["gap"]))}


def _timed(solver: Any, rows: list[tuple[float, float, int]]) -> Callable[..., int]:
    """`solver.place`, which appends its milliseconds, of wall and processor, and how often it fell back."""
    place, statistics = solver.place, solver.statistics

    def timed(*arguments: int) -> int:
        wall, cpu, before = time.perf_counter(), time.thread_time(), statistics.fallbacks
        placed = int(place(*arguments))
        rows.append((1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu), statistics.fallbacks - before))
        return placed

    return timed


def _counted(schedule: Schedule) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """[starts, in their order] whether the share of GPUs in use before it counts."""
    pieces = schedule.piece_tasks * schedule.workload.gpu_milli[schedule.piece_job] / 1000
    first = np.concatenate([[True], schedule.piece_job[1:] != schedule.piece_job[:-1]])
    used = []
    for k in np.flatnonzero(first):
        at = schedule.piece_start[k]
        held = (schedule.piece_start[:k] <= at) & (schedule.piece_end[:k] > at)
        used.append(float(pieces[:k][held].sum()) / schedule.cluster.num_gpus)
    shares = np.array(used)
    return np.asarray((shares >= ALLOCATED[0]) & (shares <= ALLOCATED[1]))


def times(results: dict[str, Any], keep: Callable[[], None]) -> None:
    """250 nodes with gangs, openb with shares, 2,500 nodes drawn from openb."""
    venus, openb = load_workload(VENUS).workload, load_workload(OPENB).workload
    cases = {
        "Venus gangs, 250 nodes": (venus, "250x8:V100-16", ("milp", "milp:8")),
        "openb, 1,523 nodes": (openb, "openb", ("milp", "milp:fgd-full", "milp:8")),
        "openb, 2,500 nodes": (openb, "openb-2500", ("milp", "milp:fgd-full", "milp:8")),
    }
    for name, (workload, cluster_name, placements) in cases.items():
        cluster = drawn_nodes(load_cluster("openb"), 2500) if cluster_name == "openb-2500" else load_cluster(cluster_name)
        for placement in placements:
            if placement not in results.setdefault(name, {}):
                results[name][placement] = solve_times(workload, cluster, placement)
                note(f"{name} {placement}: {results[name][placement]}")
                keep()


def mixes(workload: Workload) -> dict[str, Workload]:
    """gpuspec33 as it is, only its shares of GPUs with the pods without GPUs, and with as many GPUs in large pods as in small ones."""
    rng = np.random.default_rng(0)
    none, share, large = workload.gpu_milli == 0, (workload.gpu_milli > 0) & (workload.gpu_milli < 1000), workload.gpu_milli > 1000
    small = ~large
    missing = float(workload.gpus[small].sum() - workload.gpus[large].sum())
    more = rng.choice(np.flatnonzero(large), max(round(missing / float(workload.gpus[large].mean())), 0))
    return {
        "gpuspec33": workload,
        "shares only": workload.take(np.flatnonzero(none | share)),
        "half in large pods": workload.take(np.sort(np.concatenate([np.arange(len(workload)), more]))).replace(
            job_id=np.arange(len(workload) + len(more))
        ),
    }


def found_numbers(rule: str) -> list[float] | None:
    """The numbers that the part `search` has found for SEARCHED; None for other rules."""
    if rule != SEARCHED:
        return None
    found = json.loads(FILE.read_text(encoding="utf-8")).get("search", {}) if FILE.exists() else {}
    if "params" not in found:
        raise SystemExit("run the part search first: the numbers of the searched rule are its result")
    return list(found["params"])


def packing(results: dict[str, Any], keep: Callable[[], None]) -> None:
    """The packing protocol on openb: order of the log, then five shuffled orders."""
    cluster = load_cluster("openb")
    for mix, pods in mixes(load_workload(OPENB).workload).items():
        for rule in RULES:
            rows = results.setdefault(mix, {}).setdefault(rule, {"first_failure": [], "seconds": []})
            for seed in range(len(rows["first_failure"]), 6 if rule != "milp:8" else 1):
                jobs = arrive_and_stay(pods, cluster, seed)
                schedule = simulate(jobs, cluster, f"fcfs+greedy@{rule}", estimates="oracle", params=found_numbers(rule))
                share = allocated_at_first_failure(measure(schedule))
                rows["first_failure"].append(share)
                rows["seconds"].append(schedule.engine_s)
                if seed == 0:
                    rows["curve"] = packing_curve(schedule).as_dict(50)
                note(f"{mix} {rule} {seed}: {share:.4f} ({schedule.engine_s:.0f} s)")
                keep()


def sixteen_nodes() -> Cluster:
    """The cluster of a published search for a placement rule on openb."""
    return build(
        "sixteen",
        [
            NodeGroup(10, gpus=2, kind="P100", cpus=64, mem_gib=256),
            NodeGroup(1, gpus=8, kind="G3", cpus=128, mem_gib=768),
            NodeGroup(2, gpus=8, kind="V100-32", cpus=96, mem_gib=768),
            NodeGroup(1, gpus=4, kind="V100-16", cpus=32, mem_gib=128),
            NodeGroup(2, gpus=8, kind="G2", cpus=96, mem_gib=384),
        ],
    )


def use_at_events(schedule: Schedule, snapshots: int = 20) -> float:
    """The mean share of GPUs in use at every 5 % of the events (starts and ends)."""
    used = schedule.piece_tasks * schedule.workload.gpu_milli[schedule.piece_job] / 1000
    when = np.concatenate([schedule.piece_start, schedule.piece_end])
    change = np.concatenate([used, -used])[np.argsort(when, kind="stable")]
    held = np.cumsum(change)
    at = (np.arange(1, snapshots + 1) * len(held) // snapshots) - 1
    return float(held[at].mean() / schedule.cluster.num_gpus)


def sixteen(results: dict[str, Any], keep: Callable[[], None]) -> None:
    pods, cluster = load_workload(DEFAULT_PODS).workload, sixteen_nodes()
    for rule in RULES:
        if rule not in results:
            schedule = simulate(pods, cluster, f"fcfs+greedy@{rule}", estimates="oracle", params=found_numbers(rule))
            waits = schedule.first_wait[schedule.finished]
            results[rule] = {"use": use_at_events(schedule), "wait_s": float(waits.mean()), "rejected": int((~schedule.finished).sum())}
            note(f"{rule}: {results[rule]}")
            keep()


def search(results: dict[str, Any], keep: Callable[[], None]) -> None:
    """Find the numbers of SEARCHED on every fourth node of openb and a shuffled half of the default pods, by CMA-ES."""
    if "done" in results:
        return
    pods, whole = load_workload(DEFAULT_PODS).workload, load_cluster("openb")
    half = pods.take(np.sort(np.random.default_rng(1).choice(len(pods), len(pods) // 2, replace=False)))
    groups = []
    for n in range(0, whole.num_nodes, 4):
        kind = whole.kinds[whole.node_kind[n]].name if whole.node_gpus[n] else ""
        cores, memory = float(whole.node_cpu_milli[n]) / 1000, float(whole.node_mem_mib[n]) / 1024
        groups.append(NodeGroup(1, gpus=int(whole.node_gpus[n]), kind=kind, cpus=cores, mem_gib=memory))
    cluster = build("openb-quarter", groups)
    lists = [arrive_and_stay(half, cluster, seed) for seed in (11, 12)]

    def loss(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        lost = 0.0
        for one in lists:
            schedule = simulate(one, cluster, f"fcfs+greedy@{SEARCHED}", params=numbers.tolist(), estimates="oracle")
            curve = packing_curve(schedule)
            lost -= float(allocated_at_first_failure(measure(schedule)) or 0.0) + float(curve.allocated[-1])
        return lost / len(lists)

    found = cma.CMAEvolutionStrategy(
        [1.0, 0.5, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0], 0.4, {"seed": 1, "verbose": -9, "popsize": 10, "maxfevals": 300}
    )
    while not found.stop():
        points = found.ask()
        found.tell(points, [loss(point) for point in points])
        results |= {
            "params": [round(float(x), 4) for x in found.result.xbest],
            "loss": float(found.result.fbest),
            "evaluations": found.countevals,
        }
        note(f"{found.countevals} {found.result.fbest:.4f} {results['params']}")
        keep()
    results["done"] = True
    keep()


def rule_name(rule: str) -> str:
    return "searched" if rule == SEARCHED else f"`{rule}`"


def render_times(results: Results) -> str:
    rows = []
    for name, by_rule in results["placement"].get("times", {}).items():
        for rule, found in by_rule.items():
            cells = [f"{found[kind][q]:.1f}" for kind in ("cpu", "wall") for q in ("p50", "p99", "max")]
            share = f"{found['fallbacks'] / found['decisions']:.2%}"
            rows.append(
                [name, rule_name(rule), f"{found['decisions']:,}", *cells, f"{found['gap_max']:.1%}", share, f"{found['load']:.0f}"]
            )
    columns = [
        "states of",
        "rule",
        "decisions",
        "CPU p50, ms",
        "p99",
        "max",
        "wall p50, ms",
        "p99",
        "max",
        "largest gap",
        "fallbacks",
        "load",
    ]
    return table(columns, rows, left=2)


def render_packing(results: Results) -> str:
    found = results["placement"].get("packing", {})
    rows = []
    for rule in RULES:
        cells = []
        for mix in found:
            shares = found[mix].get(rule, {}).get("first_failure", [])
            cells.append(f"{100 * shares[0]:.1f}" if shares else "–")
            cells.append(f"{100 * np.mean(shares[1:]):.1f}" if len(shares) > 1 else "–")
        rows.append([rule_name(rule), *cells])
    return table(["rule", *(f"{mix}, {order}" for mix in found for order in ("log's order", "shuffled"))], rows)


def render_sixteen(results: Results) -> str:
    published = [["published: first fit", "69.7", ""], ["published: best fit", "68.6", ""], ["published: found by search", "73.4", ""]]
    own = [
        [rule_name(rule), f"{100 * row['use']:.1f}", f"{row['wait_s'] / 3600:.1f}"]
        for rule, row in results["placement"].get("sixteen", {}).items()
    ]
    return table(["rule", "GPU use, %", "mean wait, h"], published + own)


PARTS = {"search": search, "times": times, "sixteen": sixteen, "packing": packing}
TABLES = {"placement_times": render_times, "placement_packing": render_packing, "placement_sixteen": render_sixteen}


def main() -> None:
    results: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}

    def keep() -> None:
        write_text(FILE, to_json(results))

    for part in sys.argv[1:] or PARTS:
        if part != "render":
            PARTS[part](results.setdefault(part, {}), keep)
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), {"placement": results}, TABLES))


if __name__ == "__main__":
    main()
