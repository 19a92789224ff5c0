"""Policies × windows: measure every policy on every window of a plan in parallel, and resume an interrupted run.

A cell is one policy on one window. Each cell is written as soon as it is finished. The fingerprint of the experiment (jobs, cluster,
windows and settings) is written first. These are refused: a folder with another fingerprint, a folder with cells of a policy whose file
has changed since, and a comparison of cells that did not finish the same jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.config import parse_toml, to_toml
from queuewise.errors import InputError
from queuewise.evaluation.bounds import lower_bounds
from queuewise.evaluation.identity import RULE, digest, digest_cluster, digest_policy, digest_workload
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.packing import arrive_and_stay, packing_curve
from queuewise.evaluation.protocol import Plan, Window
from queuewise.evaluation.replay_files import CONFIG_FILE, is_replay, read_facts, write_cluster, write_replay
from queuewise.evaluation.scores import Score, score_values
from queuewise.evaluation.statistics import Standing, ranking
from queuewise.runs import file_name, write_text
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

Simulator = Callable[..., Schedule]  # queuewise.policies.simulate, or a stand-in with its signature

WORLD = "world"  # key of the conditions in a stored fingerprint


@dataclass(frozen=True)
class ReplaySettings:
    """How every window is replayed and measured."""

    dispatch: str = "reorder"
    estimates: str = "requested"
    kill_at_limit: bool = False
    max_wait: str | None = None  # bound on waits under policies that have none
    seed: int = 0
    warmup: float = 0.0
    cooldown: float = 0.0
    conditions: Conditions = PERFECT  # outages, costs of preemption, …


@dataclass(frozen=True, eq=False)
class Experiment:
    workload: Workload
    cluster: Cluster
    plan: Plan
    settings: ReplaySettings
    draw: Callable[[int, int], Workload] | None = None  # (jobs, seed) -> workload, if the windows come from a model

    def jobs_of(self, window: Window) -> Workload:
        """The jobs of this window, the same for every policy."""
        if self.plan.protocol == "packing":
            return arrive_and_stay(self.workload, self.cluster, window.seed or 0)
        if window.seed is not None and self.draw is not None:
            return self.draw(window.stop, window.seed)
        return self.workload.take(slice(window.start, window.stop))

    def fingerprint(self) -> dict[str, Any]:
        """Everything except the policies that the results depend on. Runs with equal fingerprints are comparable.

        It is stored as `[conditions]` in config.toml.
        """
        return {
            "workload": self.workload.name,
            "workload_digest": digest_workload(self.workload),
            "cluster": self.cluster.name,
            "cluster_digest": digest_cluster(self.cluster),
            "protocol": self.plan.protocol,
            "windows": [[w.start, w.stop] if w.seed is None else [w.start, w.stop, w.seed] for w in self.plan.windows],
            **{field.name: getattr(self.settings, field.name) for field in fields(self.settings) if field.name != "conditions"},
            WORLD: self.settings.conditions.model_dump_json(exclude_defaults=True),
        }


@dataclass(frozen=True)
class Cell:
    """One policy on one window."""

    policy: str
    window: int
    scores: Mapping[str, float | None]
    bounds: Mapping[str, float | None]  # lower bounds, for scores that have one
    metrics: Mapping[str, Any]
    finished_digest: str  # of the counted jobs that finished
    packing: Mapping[str, Any] | None = None

    def renamed(self, label: str) -> Cell:
        return replace(self, policy=label)


def run_experiment(
    experiment: Experiment,
    policies: Sequence[str],
    simulator: Simulator,
    *,
    folder: Path | None = None,
    on_cell: Callable[[Cell], None] = lambda cell: None,
    threads: int | None = None,
) -> list[Cell]:
    """All cells, policy by policy. Cells that are already in the folder are read. `on_cell` is called for each finished cell."""
    identity = {policy: digest_policy(policy) for policy in policies} if folder is not None else {}
    todo = [(policy, index) for policy in dict.fromkeys(policies) for index in range(len(experiment.plan.windows))]
    if folder is not None:
        open_folder(folder, experiment)
        for policy, known in identity.items():
            _check_unchanged(folder, experiment.plan, policy, known)

    def work(policy: str, index: int) -> Cell:
        home = cell_folder(folder, experiment.plan, policy, index) if folder is not None else None
        if home is not None and is_replay(home):
            cell = read_cell(home)
        else:
            schedule = _replay(experiment, policy, index, simulator)
            cell = measure_cell(experiment, policy, index, schedule)
            if home is not None:
                kept = {key: getattr(cell, key) for key in ("window", "scores", "bounds", "metrics", "finished_digest", "packing")}
                write_replay(home, schedule, policy_digest=identity[policy], **kept)
        on_cell(cell)
        return cell

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        futures = [pool.submit(work, policy, index) for policy, index in todo]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:  # after an error or Ctrl-C, finish and keep what is running, and start nothing else
                future.cancel()
        return [future.result() for future in futures if not future.cancelled()]


def cell_folder(run: Path, plan: Plan, policy: str, index: int) -> Path:
    home = run / file_name(policy)
    return home if len(plan.windows) == 1 else home / f"w{index:03d}"


def _check_unchanged(run: Path, plan: Plan, policy: str, identity: str) -> None:
    """Raise an error if the folder has cells of a policy whose file has changed since."""
    homes = (cell_folder(run, plan, policy, index) for index in range(len(plan.windows)))
    if any(is_replay(home) and read_facts(home).get("policy_digest", RULE) != identity for home in homes):
        raise InputError(
            f"contains results of an earlier version of {policy}",
            where=str(run / file_name(policy)),
            hint="choose another --out folder or remove this one",
        )


def _replay(experiment: Experiment, policy: str, index: int, simulator: Simulator) -> Schedule:
    settings = experiment.settings
    return simulator(
        experiment.jobs_of(experiment.plan.windows[index]),
        experiment.cluster,
        policy,
        dispatch=settings.dispatch,
        estimates=settings.estimates,
        seed=settings.seed,
        kill_at_limit=settings.kill_at_limit,
        conditions=settings.conditions,
        **({"max_wait": settings.max_wait} if settings.max_wait else {}),
    )


def measure_cell(experiment: Experiment, policy: str, index: int, schedule: Schedule) -> Cell:
    """Measure the schedule of a policy in one window."""
    m = measure(schedule, warmup=experiment.settings.warmup, cooldown=experiment.settings.cooldown)
    counted = np.zeros(len(schedule.workload), dtype=bool)
    counted[m.rows] = True
    bounds = lower_bounds(schedule.workload, schedule.cluster, counted)
    packing = packing_curve(schedule).as_dict() if experiment.plan.protocol == "packing" else None
    return Cell(
        policy=policy,
        window=index,
        scores=score_values(m),
        bounds={name: bounds.for_score(name) for name in ("jct", "bsld", "wait")},
        metrics=all_metrics(m),
        finished_digest=digest(m.rows),
        packing=packing,
    )


def read_cell(home: Path) -> Cell:
    """A finished cell from its folder."""
    facts = read_facts(home)
    try:
        return Cell(**{field.name: facts[field.name] for field in fields(Cell)})
    except KeyError as error:
        raise InputError(
            f"replay.json has no {error}", where=str(home), hint="this folder was not written by evaluate; choose another --out"
        ) from None


def open_folder(folder: Path, experiment: Experiment) -> None:
    """Create the folder, or check that it belongs to the same experiment."""
    fingerprint = experiment.fingerprint()
    config = folder / CONFIG_FILE
    if config.exists():
        stored = parse_toml(config).get("conditions", {})
        differing = ["conditions" if key == WORLD else key for key, value in fingerprint.items() if stored.get(key) != value]
        if differing:
            raise InputError(
                f"contains a run with other settings: {', '.join(differing)} differ", where=str(folder), hint="choose another --out folder"
            )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be created: {error.strerror}", where=str(folder), hint="choose another --out folder") from None
    write_cluster(folder, experiment.cluster)
    write_text(config, to_toml({"command": "evaluate", "conditions": fingerprint}))


@dataclass(frozen=True, eq=False)
class Result:
    """The scores of every policy on every window, with a ranking."""

    score: Score
    per_window: Mapping[str, Sequence[float]]  # policy -> [windows]
    standings: Sequence[Standing]  # best first
    lower_bound: float | None  # mean over windows
    max_wait_s: Mapping[str, float | None]  # policy -> longest wait in any window

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "policy": s.policy,
                "score": self.score.name,
                "mean": s.mean,
                "ci95": list(s.ci95 or (None, None)),
                "per_window": list(self.per_window[s.policy]),
                "vs_best_baseline": None if s.vs_best_baseline is None else {
                    "diff": s.vs_best_baseline.diff,
                    "ci95": list(s.vs_best_baseline.ci95 or (None, None)),
                    "win_rate": s.vs_best_baseline.win_rate,
                    "baseline": s.best_baseline,
                },
                "rank": s.rank,
                "max_wait_s": self.max_wait_s[s.policy],
                "lower_bound": self.lower_bound,
            }
            for s in self.standings
        ]  # fmt: skip


def judge(cells: Sequence[Cell], score: Score) -> Result:
    """Scores, intervals and ranks. Raises an error unless all policies finished the same jobs of the same windows."""
    check_equal_jobs(cells)
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    ordered = sorted(cells, key=lambda cell: cell.window)
    per_window = {
        policy: [score.of(cell.scores, f"{policy}, window {cell.window}") for cell in ordered if cell.policy == policy]
        for policy in policies
    }
    baselines = [policy for policy in policies if is_baseline(policy)]
    standings = ranking(per_window, higher_is_better=score.higher_is_better, baselines=baselines)
    bound = _mean_bound([cell for cell in ordered if cell.policy == policies[0]], score)
    return Result(score, per_window, standings, bound, {policy: _longest_wait(cells, policy) for policy in policies})


def _longest_wait(cells: Sequence[Cell], policy: str) -> float | None:
    waits = [(cell.metrics.get("wait_s") or {}).get("max") for cell in cells if cell.policy == policy]
    return max((wait for wait in waits if wait is not None), default=None)


def is_baseline(policy: str) -> bool:
    """Whether a policy is a fixed rule, not a trained model, a planner or a user's function."""
    return not policy.startswith(("model:", "plan:")) and ".py" not in policy


def check_equal_jobs(cells: Sequence[Cell]) -> None:
    by_window: dict[int, Cell] = {}
    for cell in cells:
        other = by_window.setdefault(cell.window, cell)
        if cell.finished_digest != other.finished_digest:
            counts = " and ".join(f"{c.policy} {c.metrics['completed']} of {c.metrics['jobs']}" for c in (other, cell))
            raise InputError(
                f"window {cell.window}: policies did not finish the same jobs ({counts}), so their means are not comparable",
                hint="omit the policy that rejects jobs, or remove these jobs from the workload",
            )
    windows = {policy: {c.window for c in cells if c.policy == policy} for policy in {c.policy for c in cells}}
    if len({frozenset(w) for w in windows.values()}) > 1:
        raise InputError("policies were not measured on the same windows", hint="run evaluate again to complete the missing windows")


def _mean_bound(cells: Sequence[Cell], score: Score) -> float | None:
    if len(score.terms) > 1:
        return None
    weight, name = score.terms[0]
    values = [cell.bounds.get(name) for cell in cells]
    known = [value for value in values if value is not None]
    return weight * float(np.mean(known)) if known and len(known) == len(values) else None
