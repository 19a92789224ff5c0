"""Policies × windows: measure every policy on every window of a plan in parallel, and resume an interrupted run.

A cell is one policy on one window. Each cell is written as soon as it is finished. The fingerprint of the experiment (jobs, cluster,
windows and settings) is written first. A folder with another fingerprint is refused, and one with cells of a policy whose file has
changed since. `judging` compares the cells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.config import parse_toml, to_toml, validate
from queuewise.errors import InputError
from queuewise.evaluation.bounds import lower_bounds
from queuewise.evaluation.identity import RULE, digest, digest_cluster, digest_policy, digest_workload
from queuewise.evaluation.measure import Measurement, bounded_slowdown, measure, measure_from
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.packing import arrive_and_stay, packing_curve
from queuewise.evaluation.protocol import DEFAULT_SPLIT, SHAKE_S, WARM_POLICY, Plan, Window
from queuewise.evaluation.remarks import rejections
from queuewise.evaluation.replay_files import CONFIG_FILE, REPLAY_FILE, has_tables, is_replay, read_facts, write_cluster, write_replay
from queuewise.evaluation.scores import score_values
from queuewise.evaluation.stored_fields import CellFields
from queuewise.evaluation.units import unit_sums
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.policies.estimating import declare_part
from queuewise.policies.simulation import Simulation
from queuewise.policies.snapshot import Snapshot
from queuewise.runs import create_folder, file_name, locked, write_text
from queuewise.sim.core.schedule import REJECTED, Schedule
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.transform import shake, shaken_order

Simulator = Callable[..., Schedule]  # queuewise.policies.simulate, or a stand-in with its signature

CONDITIONS_KEY = "world"  # of the conditions in a stored fingerprint


@dataclass(frozen=True)
class ReplaySettings:
    """How every window is replayed and measured."""

    dispatch: str = "reorder"
    estimates: str | None = None  # None: the default for the workload
    kill_at_limit: bool = False
    max_wait: str | None = None  # bound on waits under policies that have none
    seed: int = 0
    warmup: float = 0.0
    cooldown: float = 0.0
    split: tuple[float, float, float] = DEFAULT_SPLIT  # of a log by time: train, val, report
    start: str = "empty"  # of windows of a log: `warm`, as a replay under WARM_POLICY leaves the cluster, or `empty`
    conditions: Conditions = PERFECT  # outages, costs of preemption, …
    budgets: Budgets = USUAL_BUDGETS  # of policies that solve or plan


SETTINGS = [field.name for field in fields(ReplaySettings) if field.name not in ("conditions", "split", "budgets")]


@dataclass(frozen=True, eq=False)
class Experiment:
    workload: Workload
    cluster: Cluster
    plan: Plan
    settings: ReplaySettings
    draw: Callable[[int, int], Workload] | None = None  # (jobs, seed) -> workload, if the windows come from a model
    what_if: str = ""  # how it differs from what is, in words, for the run folder

    def jobs_of(self, window: Window) -> Workload:
        """The jobs of this window, the same for every policy."""
        if self.plan.protocol == "packing":
            return arrive_and_stay(self.workload, self.cluster, window.seed or 0)
        if window.seed is not None and self.draw is not None:
            return self.draw(window.stop, window.seed)
        start = self.starts.get(window)
        rows = np.arange(window.start, window.stop) if start is None else start.select(self.workload, window.start, window.num_jobs)
        part = self.workload.take(rows)
        if window.shake:
            part, order = shake(part, SHAKE_S, window.shake, boundary=window.counted)
            rows = rows[order]
        return declare_part(part, self.workload, rows)

    def logged_submit(self, window: Window) -> Floats:
        """[J] when the jobs of a replay of the window were submitted in the log, before they were shaken."""
        submit = self.workload.submit[window.start : window.stop]
        return submit[shaken_order(submit, SHAKE_S, window.shake, boundary=window.counted)[1]] if window.shake else submit

    @cached_property
    def starts(self) -> dict[Window, Snapshot]:
        """What the windows begin with: jobs that wait and run just before the first submission. None are there if they begin empty.

        It comes from one replay of the log, and is the same for every policy.
        """
        if self.settings.start != "warm":
            return {}
        settings = self.settings
        simulation = Simulation(
            self.workload, self.cluster, WARM_POLICY, estimates=settings.estimates, seed=settings.seed,
            kill_at_limit=settings.kill_at_limit, conditions=settings.conditions,
        )  # fmt: skip
        found = {}
        for window in sorted(self.plan.windows, key=lambda window: window.start):
            simulation.run(until=float(np.nextafter(self.workload.submit[window.start], -np.inf)))
            found[window] = simulation.snapshot(history=False)
        return found

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
            "windows": [window.as_list() for window in self.plan.windows],
            **{name: getattr(self.settings, name) for name in SETTINGS},
            "split": list(self.settings.split),
            **({} if self.settings.budgets == USUAL_BUDGETS else {"budgets": asdict(self.settings.budgets)}),
            CONDITIONS_KEY: self.settings.conditions.model_dump_json(exclude_defaults=True),
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
    units: Mapping[str, Any] | None = None  # protocol days: `unit_sums`
    unit_s: float | None = None  # of these: seconds of a unit; None: there is one
    geometric_mean: float | None = None  # of the bounded slowdown, over jobs
    makespan_by_span: float | None = None  # time until the last end ÷ time until the last submission of a job that ran
    seen: bool = False  # the policy is a model that was trained or chosen on days that count
    rejections: Sequence[str] = ()  # why jobs of the replay were rejected, one line per reason

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
    seen: Sequence[str] = (),
    full_names: Mapping[str, str] = MappingProxyType({}),
) -> list[Cell]:
    """All cells, policy by policy. Cells that are already in the folder are read. `on_cell` is called for each finished cell.

    The cells of policies in `seen` are marked: these have seen days that count. `full_names` are those of policies that have another name
    in results, and whose files could not be found by it.
    """
    if folder is None:
        return _run_cells(experiment, policies, simulator, None, on_cell, threads, seen, {})
    create_folder(folder)
    with locked(folder):
        identity = {policy: digest_policy(full_names.get(policy, policy)) for policy in policies}
        return _run_cells(experiment, policies, simulator, folder, on_cell, threads, seen, identity)


def _run_cells(
    experiment: Experiment,
    policies: Sequence[str],
    simulator: Simulator,
    folder: Path | None,
    on_cell: Callable[[Cell], None],
    threads: int | None,
    seen: Sequence[str],
    identity: Mapping[str, str],
) -> list[Cell]:
    experiment.starts  # noqa: B018 (made once, before there are threads)
    todo = [(policy, index) for policy in dict.fromkeys(policies) for index in range(len(experiment.plan.windows))]
    if folder is not None:
        open_folder(folder, experiment)
        for policy, known in identity.items():
            _check_unchanged(folder, experiment.plan, policy, known)

    def work(policy: str, index: int) -> Cell:
        home = cell_folder(folder, experiment.plan, policy, index) if folder is not None else None
        if home is not None and is_replay(home) and has_tables(home):
            cell = read_cell(home)
        else:
            schedule = _replay(experiment, policy, index, simulator)
            cell = replace(measure_cell(experiment, policy, index, schedule), seen=policy in seen)
            if home is not None:
                kept = {key: getattr(cell, key) for key in [field.name for field in fields(Cell) if field.name != "policy"]}
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
    settings, window = experiment.settings, experiment.plan.windows[index]
    budgets = settings.budgets if settings.budgets != USUAL_BUDGETS else None
    options: dict[str, Any] = {"max_wait": settings.max_wait, "start": experiment.starts.get(window), "budgets": budgets}
    return simulator(
        experiment.jobs_of(window),
        experiment.cluster,
        policy,
        dispatch=settings.dispatch,
        estimates=settings.estimates,
        seed=settings.seed,
        kill_at_limit=settings.kill_at_limit,
        conditions=settings.conditions,
        **{name: value for name, value in options.items() if value is not None},
    )


def measure_window(schedule: Schedule, window: Window, start: str, *, warmup: float, cooldown: float) -> Measurement:
    """What counts of a replay of the window, which began `warm` or `empty`."""
    if window.shake is not None or start == "warm":
        return measure_from(schedule, window.first_counted(len(schedule.workload)))
    return measure(schedule, warmup=warmup, cooldown=cooldown)


def measure_cell(experiment: Experiment, policy: str, index: int, schedule: Schedule) -> Cell:
    """Measure the schedule of a policy in one window."""
    window, settings = experiment.plan.windows[index], experiment.settings
    m = measure_window(schedule, window, settings.start, warmup=settings.warmup, cooldown=settings.cooldown)
    slowdowns = bounded_slowdown(m)
    span = float(schedule.workload.submit[m.rows].max(initial=m.begin)) - m.begin  # of the jobs that ran: others may come after all ends
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
        units=unit_sums(m, experiment.plan.unit_s, experiment.logged_submit(window)) if window.shake is not None else None,
        unit_s=experiment.plan.unit_s,
        geometric_mean=float(np.exp(np.log(slowdowns).mean())) if slowdowns.size else None,
        makespan_by_span=m.span / span if slowdowns.size and span > 0 else None,
        rejections=rejections(schedule.workload, schedule.cluster, schedule.status == REJECTED),
    )


def read_cell(home: Path) -> Cell:
    """A finished cell from its folder."""
    facts = read_facts(home)
    missing = [one.name for one in fields(Cell) if one.default is MISSING and one.name not in facts]
    if missing:
        raise InputError(
            f"replay.json has no {missing[0]!r}", where=str(home), hint="this folder was not written by evaluate; choose another --out"
        )
    validate(CellFields, facts, source=str(home / REPLAY_FILE))
    return Cell(**{one.name: facts[one.name] for one in fields(Cell) if one.name in facts})


def open_folder(folder: Path, experiment: Experiment) -> None:
    """Describe the experiment in the folder, or check that it belongs to the same one."""
    fingerprint = experiment.fingerprint()
    config = folder / CONFIG_FILE
    if config.exists():
        stored = parse_toml(config).get("conditions")
        stored = stored if isinstance(stored, dict) else {}
        differing = ["conditions" if key == CONDITIONS_KEY else key for key, value in fingerprint.items() if stored.get(key) != value]
        differing += ["budgets"] if "budgets" in stored and "budgets" not in fingerprint else []
        if differing:
            raise InputError(
                f"contains a run with other settings: {', '.join(differing)} differ", where=str(folder), hint="choose another --out folder"
            )
        write_cluster(folder, experiment.cluster)  # again, in case it was lost or damaged
        return
    write_cluster(folder, experiment.cluster)
    changes = {"what_if": experiment.what_if} if experiment.what_if else {}
    write_text(config, to_toml({"command": "evaluate", **changes, "conditions": fingerprint}))
