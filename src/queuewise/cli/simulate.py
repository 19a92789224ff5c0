"""`queuewise simulate`: replay a workload on a cluster under one or more policies."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from queuewise.cli.inputs import move_with_load, read_conditions
from queuewise.cli.progress import progress_of
from queuewise.cli.what_if import WhatIf, other_jobs, print_replays, same_lines
from queuewise.plain_text import printable
from queuewise.reading import Reading, parse_model_args

if TYPE_CHECKING:
    from queuewise.cluster import Cluster
    from queuewise.cluster.conditions import Conditions
    from queuewise.evaluation.wait_causes import WaitCauses
    from queuewise.policies.budgets import Budgets
    from queuewise.sim.core.schedule import Schedule
    from queuewise.workload import Loaded


DROP_FIRST = ("jobs/s", "kWh", "makespan", "mean JCT", "completed", "p50")  # where the terminal is narrow


@dataclass(frozen=True)
class Simulate:
    """Replay a workload on a cluster under one or more policies and compare them."""

    workload: Annotated[str, tyro.conf.arg(metavar="FILE|MODEL")]
    """A log (SWF, sacct, …; the format is detected) or the name of a workload model."""
    policy: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="POLICY")]
    """order[+backfill[/depth][:order]][~bound][@placement], e.g. fcfs, sjf+easy~3d, fcfs+easy/32:sjf@spread, FILE.py:NAME for
    your own policy, or model:RUN for a trained network. Repeat to compare several. See queuewise policies."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    reading: Reading = field(default_factory=Reading)
    workload_args: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PARAMETER=VALUE")] = ()
    """Parameters of a workload model, e.g. load=1.1; queuewise workload generate lists them."""
    dispatch: Literal["reorder", "commit"] = "reorder"
    """reorder: sort the queue again at every decision. commit: keep the machine free for the chosen job until it fits."""
    estimates: Annotated[str | None, tyro.conf.arg(metavar="KIND")] = None
    """What policies know about runtimes: requested, predicted, oracle or noisy:SIGMA. Default: requested if the log has requests,
    predicted if it has none, oracle for a workload model without."""
    kill_at_limit: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Kill jobs that exceed their requested time."""
    max_wait: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Bound the waits under every policy whose name has no bound: a number with s, m, h or d, e.g. 3d. Same as ~3d in the name."""
    milp_work: Annotated[int, tyro.conf.arg(metavar="N")] = 200
    """For @milp: nodes of the search for one placement, after which the best one found so far is taken."""
    plan_budget: Annotated[int, tyro.conf.arg(metavar="N")] = 64
    """For plan: and portfolio: rollouts per decision."""
    plan_samples: Annotated[int, tyro.conf.arg(metavar="N")] = 8
    """For plan: and portfolio: futures that each candidate is tried with, as far as the budget allows."""
    conditions: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with outages, failures, reservations, preemption costs, quotas, node sleep or a power cap
    (see docs/conditions.md)."""
    what_if: WhatIf = field(default_factory=WhatIf)
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of a log, or generate N jobs from a model."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for the model, noisy estimates and random policies."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Write a run folder: config.toml, summary.json, summary.csv, and jobs.parquet for each policy."""
    allow_rejected: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with exit code 0 even if more than half of the jobs can never run on the cluster (otherwise 3)."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse models whose file has another SHA-256 than these, as sha256sum prints it."""
    columns: Annotated[str | None, tyro.conf.arg(metavar="NAME,…")] = None
    """Further columns of the table, by the names of docs/metrics.md: flops_utilisation,load_imbalance,completion_rate,energy_cost,…,
    also wait_s.p95. Those four, the fairness and the table by priority are always in --json."""
    csv: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --out: also write jobs.csv for each policy, with a row per job, and priorities.csv, with a row per policy and priority."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list with one object per policy."""

    def run(self) -> int:
        self._check()
        from queuewise.cli.console import note
        from queuewise.evaluation import remarks
        from queuewise.evaluation.seen_days import remarks_on_log

        reading = replace(self.reading, load_factor=None)
        args = parse_model_args(self.workload_args, self.workload)
        as_is, machine = reading.load_with_cluster(self.workload, self.cluster, self.jobs, self.seed, note, args)
        loaded, cluster = replace(as_is, workload=self.reading.faster(as_is.workload)), self.what_if.cluster(machine)
        conditions = read_conditions(self.conditions, as_is.workload)
        moved = move_with_load(conditions, as_is.workload, self.reading.load_factor)
        changed = self.what_if.conditions(moved, cluster, float(loaded.workload.submit[0]))
        policies = list(dict.fromkeys(self.policy))
        with progress_of("replaying", len(policies) * (2 if self._asks_what_if else 1)) as advance:
            before = [self._replay(as_is, machine, policy, conditions, advance) for policy in policies] if self._asks_what_if else []
            schedules = [self._replay(loaded, cluster, policy, changed, advance) for policy in policies]
        summaries, causes = self._measure(schedules)
        rejected = _report_rejected(before, schedules)
        found = [*remarks_on_log(self.policy, loaded.workload, self.workload, self.reading.load_factor)]
        found += remarks.before(loaded.workload, cluster, self.policy, schedules[0].estimate, schedules[0].estimates)
        slowdowns = [mean for row in summaries if (mean := row["bounded_slowdown"]["mean"]) is not None]
        if len(slowdowns) == len(summaries) and not any(row["unfinished"] for row in summaries):
            found += remarks.after(loaded.workload, cluster, [row["wait_s"]["p95"] for row in summaries], slowdowns)
        for remark in found:
            note(remark)
        for row, old in zip(summaries, self._measure(before)[0], strict=True) if before else ():
            row["as_is"] = old
        for line in other_jobs([row["as_is"] for row in summaries], summaries) if before else ():
            note(line)
        if self.out:
            self._write(schedules, causes, summaries)
        if self.json:
            print(json_text.dumps(summaries, indent=2, allow_nan=False))
        elif before:
            title = f"{loaded.workload.name} on {machine.name}, {self.what_if.title(self.reading.load_factor)}"
            print_replays(title, [row["as_is"] for row in summaries], summaries, self._columns())
        else:
            title = f"{loaded.workload.name}: {len(loaded.workload):,} jobs on {cluster.name}, estimates {schedules[0].estimates}"
            _print(title, summaries, self._columns())
            _print_causes(schedules, causes)
        return remarks.exit_code(rejected, len(loaded.workload), allowed=self.allow_rejected)

    @property
    def _asks_what_if(self) -> bool:
        return self.what_if.changes_nodes or self.reading.load_factor is not None

    def _measure(self, schedules: list[Schedule]) -> tuple[list[dict[str, Any]], list[WaitCauses]]:
        from queuewise.evaluation.breakdown import as_dicts, by_priority
        from queuewise.evaluation.measure import measure
        from queuewise.evaluation.metrics import some_figures, summarise
        from queuewise.evaluation.wait_causes import wait_causes

        causes = [wait_causes(schedule) for schedule in schedules]
        rows = [summarise(schedule) | {"wait_causes": its.means()} for schedule, its in zip(schedules, causes, strict=True)]
        for row, m in zip(rows, map(measure, schedules), strict=True):
            row |= {"by_priority": as_dicts(by_priority(m))} | some_figures(m, self._columns())
        return rows, causes

    def _check(self) -> None:
        from queuewise.cli.console import check_policies
        from queuewise.errors import InputError
        from queuewise.runs import start_run

        if not self.policy:
            raise InputError("no policy given", hint="add --policy fcfs; repeat --policy to compare several")
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"--jobs {self.jobs} is too few", hint="use 1 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        check_policies(self.policy, self.max_wait, self.model_sha256)
        self._budgets  # noqa: B018 - report a number that is out of range before the replay
        self._columns()
        if self.csv and not self.out:
            raise InputError("--csv needs a folder to write to", hint="add --out DIR")
        if self.out:
            start_run(self.out)  # report a problem with the folder before the replay

    def _columns(self) -> list[str]:
        """The names in --columns."""
        from queuewise.errors import unknown_name
        from queuewise.evaluation.metrics import figure_names

        names = [] if self.columns is None else [name.strip() for name in self.columns.split(",")]
        for name in names:
            if name not in figure_names():
                raise unknown_name("column", name, figure_names())
        return names

    @property
    def _budgets(self) -> Budgets:
        from queuewise.policies.budgets import Budgets

        return Budgets(self.milp_work, self.plan_budget, self.plan_samples)

    def _replay(self, loaded: Loaded, cluster: Cluster, policy: str, conditions: Conditions, advance: Callable[[str], None]) -> Schedule:
        from queuewise.cli.console import announce_compilation
        from queuewise.policies import simulate
        from queuewise.policies.names import parse_policy, plays_apart

        announce_compilation(playing=plays_apart(policy) and not parse_policy(policy).planner)
        schedule = simulate(
            loaded.workload,
            cluster,
            policy,
            dispatch=self.dispatch,
            estimates=self.estimates,
            seed=self.seed,
            kill_at_limit=self.kill_at_limit,
            max_wait=self.max_wait,
            conditions=conditions,
            budgets=self._budgets,
        )
        advance(policy)
        return schedule

    def _write(self, schedules: list[Schedule], causes: list[WaitCauses], summaries: list[dict[str, Any]]) -> None:
        from queuewise.cli.console import note
        from queuewise.config import to_toml
        from queuewise.evaluation.jobs_table import jobs_table
        from queuewise.evaluation.replay_files import CONFIG_FILE, write_cluster, write_replay
        from queuewise.evaluation.results import flatten, to_csv
        from queuewise.runs import LAST_FILE, file_name, write_text, writing_run

        options = asdict(self)
        nested = {**options.pop("reading"), **options.pop("what_if")}
        if what_if := self.what_if.title(self.reading.load_factor):
            nested["what_if"] = what_if
        with writing_run(self.out or "") as folder:
            write_text(folder / CONFIG_FILE, to_toml({"command": "simulate", **options, **nested}))
            write_cluster(folder, schedules[0].cluster)
            for schedule, its in zip(schedules, causes, strict=True):
                write_replay(folder / file_name(schedule.policy), schedule, its)
            if self.csv:
                rows = [{"policy": row["policy"], **its} for row in summaries for its in row["by_priority"]]
                write_text(folder / "priorities.csv", to_csv(rows))
                for schedule, its in zip(schedules, causes, strict=True):
                    jobs_table(schedule, its).write_csv(folder / file_name(schedule.policy) / "jobs.csv")
            kept = [{name: value for name, value in row.items() if name != "by_priority"} for row in summaries]
            write_text(folder / "summary.csv", to_csv([flatten(summary) for summary in kept]))
            write_text(folder / LAST_FILE, json_text.dumps(summaries, indent=2, allow_nan=False))
        note(f"written to {folder}")


def _report_rejected(before: list[Schedule], schedules: list[Schedule]) -> int:
    """Print why jobs never ran: they fit on no empty cluster, or depend on a job that cannot succeed. Returns the most rejected jobs.

    `before` are the schedules as it is, if something was changed.
    """
    from queuewise.cli.console import note
    from queuewise.evaluation.remarks import never_ran
    from queuewise.sim.core.schedule import REJECTED

    def lines(some: list[Schedule]) -> list[str]:
        return list(dict.fromkeys(line for schedule in some for line in never_ran(schedule)))  # it rarely depends on the policy

    for line in same_lines(lines(before), lines(schedules)) if before else lines(schedules):
        note(line)
    return max(int((schedule.status == REJECTED).sum()) for schedule in schedules)


def _print(title: str, summaries: list[dict[str, Any]], more: list[str]) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import duration, figure

    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "policy": lambda row: row["policy"],
        "completed": lambda row: figure(row["completed"]),
        "killed": lambda row: figure(row["killed"]),
        "rejected": lambda row: figure(row["rejected"]),
        "cancelled": lambda row: figure(row["cancelled"]),
        "failed": lambda row: figure(row["failed"]),
        "unfinished": lambda row: figure(row["unfinished"]),
        "mean wait": lambda row: duration(row["wait_s"]["mean"]),
        "p50": lambda row: duration(row["wait_s"]["p50"]),
        "p99": lambda row: duration(row["wait_s"]["p99"]),
        "max wait": lambda row: duration(row["wait_s"]["max"]),
        "mean JCT": lambda row: duration(row["jct_s"]["mean"]),
        "bounded slowdown": lambda row: figure(row["bounded_slowdown"]["mean"], 2),
        "makespan": lambda row: duration(row["makespan_s"]),
        "GPU use": lambda row: figure(row["gpu_utilisation"], 3),
        "CPU use": lambda row: figure(row["cpu_utilisation"], 3),
        "kWh": lambda row: figure(row["energy_kwh"]),
        "jobs/s": lambda row: figure(row["jobs_per_s"]),
    }
    seldom = ("killed", "rejected", "cancelled", "failed", "unfinished")
    columns = {name: show for name, show in columns.items() if name not in seldom or any(row[name] for row in summaries)}
    rows = [[*(show(row) for show in columns.values()), *(figure(row[name], 3) for name in more)] for row in summaries]
    narrow = [number for name in DROP_FIRST for number, column in enumerate(columns) if column == name]
    print_table([*columns, *more], rows, title=title, drop_first=narrow)


def _print_causes(schedules: list[Schedule], causes: list[WaitCauses]) -> None:
    """Print where the waiting came from, in one line per policy under which a job waited."""
    from queuewise.evaluation.wait_causes import in_words

    for schedule, its in zip(schedules, causes, strict=True):
        if its.shares():
            under = f" under {schedule.policy}" if len(schedules) > 1 else ""
            print(f"waiting{printable(under)}: {in_words(its.shares())}")
