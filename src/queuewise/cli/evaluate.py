"""`queuewise evaluate`: compare policies on the same windows of a workload, with confidence intervals."""

from __future__ import annotations

import json as json_text
import shutil
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from queuewise.cli.inputs import move_with_load, read_conditions
from queuewise.cli.progress import progress_of
from queuewise.cli.what_if import WhatIf, compare_results, count_jobs, other_jobs, print_results, same_lines
from queuewise.reading import Reading, args_on_cluster, parse_model_args

if TYPE_CHECKING:
    from queuewise.evaluation.experiment import Cell, Experiment
    from queuewise.evaluation.judging import Result
    from queuewise.evaluation.protocol import Plan
    from queuewise.workload import Workload


@dataclass(frozen=True)
class Evaluate:
    """Compare policies on the same windows of a workload: means with 95 % confidence intervals, paired differences and a ranking."""

    workload: Annotated[str, tyro.conf.arg(metavar="FILE|MODEL")]
    """A log (the format is detected) or the name of a workload model."""
    policy: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="POLICY")]
    """order[+backfill[/depth][:order]][~bound][@placement], e.g. sjf+easy~3d, FILE.py:NAME for your own policy, or model:RUN for a
    trained network. Repeat to compare several. See queuewise policies."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    protocol: Literal["days", "windows", "blocks", "replay", "rlscheduler", "packing"] | None = None
    """days (default for logs): one replay of the log, its last part counted day by day. windows (default for workload models):
    random windows. blocks: windows from a block that training never sees. replay: the whole log.
    rlscheduler: the ten sequences of that paper. packing: jobs arrive and never leave."""
    score: Annotated[str | None, tyro.conf.arg(metavar="SCORE")] = None
    """Score to rank by: bsld, wait, jct, slowdown, util, energy, fairness, packed, or a sum such as 0.7*bsld+0.3*wait.
    Default: bsld, or packed for the packing protocol."""
    windows: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of windows, 10 by default, or as many as there are. Given without --protocol, this and the next two mean
    --protocol windows."""
    window_jobs: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Jobs per window, 1024 by default."""
    starts: Annotated[str | None, tyro.conf.arg(metavar="I,J,…")] = None
    """Start the windows at these jobs (counted from 0) instead of at random ones."""
    overlap: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let windows of a log overlap. Their scores then depend on each other, and intervals say less than they promise."""
    start: Literal["warm", "empty"] | None = None
    """How windows of a log begin: warm (default), with the jobs that wait and run then in a replay of the log under fcfs+easy, or
    empty (default with --warmup or --cooldown)."""
    block: Literal["val", "report"] | None = None
    """For the protocols days and blocks: val to choose between variants, report (default) for results you publish."""
    split: Annotated[str | None, tyro.conf.arg(metavar="TRAIN,VAL,REPORT")] = None
    """For the protocols days and blocks: shares of the log's time span, 0.45,0.2,0.35 by default."""
    warm: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """For the protocol days: begin the replay so long before the counted part (e.g. 14d), not with the log's first job."""
    shakes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """For the protocol days: average over N replays, 8 by default; all but the first have submissions moved by up to 60 s."""
    seen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also count days on which a model was trained or chosen. Without it, such a model is refused; with it, the result says so."""
    same: Annotated[str, tyro.conf.arg(metavar="PERCENT")] = "1%"
    """Call policies the same if they differ by less than this, whatever the interval says."""
    warmup: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.0
    """Share of jobs at the start of each window that are replayed but not counted."""
    cooldown: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.0
    """The same at the end of each window."""
    dispatch: Literal["reorder", "commit"] | None = None
    """reorder (default): sort the queue again at every decision. commit: keep the machine free for the chosen job until it fits."""
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
    """A .toml file with outages, failures, preemption costs, quotas, node sleep or a power cap (see docs/conditions.md)."""
    reading: Reading = field(default_factory=Reading)
    workload_args: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PARAMETER=VALUE")] = ()
    """Parameters of a workload model, e.g. load=1.1; queuewise workload generate lists them."""
    what_if: WhatIf = field(default_factory=WhatIf)
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of a log, or generate N jobs from a model."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for the windows, the model, noisy estimates and random policies."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of replays to run in parallel. Default: one per core."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Write a run folder. An interrupted run is resumed; finished windows are not repeated."""
    report: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also write report.html, figures and tables into the run folder."""
    allow_rejected: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with exit code 0 even if more than half of the jobs can never run on the cluster (otherwise 3)."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse models whose file has another SHA-256 than these, as sha256sum prints it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list with one object per policy."""

    def run(self) -> int:
        self._check()
        from queuewise.cli.console import announce_compilation, note
        from queuewise.evaluation.experiment import run_experiment
        from queuewise.evaluation.judging import judge
        from queuewise.evaluation.planning import parse_percent
        from queuewise.evaluation.results import write_results
        from queuewise.evaluation.scores import parse_score
        from queuewise.evaluation.units import check_score
        from queuewise.policies import parse_policy, simulate
        from queuewise.policies.names import plays_apart

        score = parse_score(self.score or ("packed" if self.protocol == "packing" else "bsld"))
        same = parse_percent(self.same)
        as_is, experiment = self._experiments()
        plan = experiment.plan
        if plan.protocol == "days":
            check_score(score)
        seen = self._seen(experiment)
        note(describe_plan(plan, experiment.workload, self.seed))
        folder = Path(self.out) if self.out else None
        is_new = folder is not None and not folder.exists()
        announce_compilation(playing=any(plays_apart(policy) and not parse_policy(policy).planner for policy in self.policy))
        total = len(set(self.policy)) * (len(plan.windows) + (len(as_is.plan.windows) if as_is else 0))
        with progress_of("replaying", total) as advance:
            options: dict[str, Any] = {"on_cell": lambda cell: advance(cell.policy), "threads": self.threads, "seen": seen}
            cells = run_experiment(experiment, self.policy, simulate, folder=folder, **options)
            before = run_experiment(as_is, self.policy, simulate, **options) if as_is else []
        for replays, replayed in ((experiment, cells), *(((as_is, before),) if as_is else ())):
            if not any(cell.metrics["completed"] for cell in replayed):
                for line in (f"no job that counts can run on {replays.cluster.name}", *rejection_lines(replayed)):
                    note(line)
                if self.json:
                    print("[]")
                if folder is not None and is_new:
                    shutil.rmtree(folder)  # there is no result, and another cluster would need another folder
                return 0 if self.allow_rejected else 3
        result = judge(cells, score, same=same)
        if folder is not None:
            write_results(folder, cells, result)
            note(f"written to {folder}")
        self._show(experiment, result, judge(before, score, same=same) if before else None)
        if folder is not None and self.report:
            from queuewise.report.html import write_report

            note(f"report: {write_report(folder)}")
        for line in other_jobs(count_jobs(before), count_jobs(cells)) if before else ():
            note(line)
        return self._remark(experiment, before, cells, result)

    def _show(self, experiment: Experiment, result: Result, before: Result | None) -> None:
        workload, cluster, settings = experiment.workload, experiment.cluster, experiment.settings
        title = f"{workload.name} on {cluster.name}, {experiment.plan.protocol}, estimates {settings.estimates}"
        paired = self.reading.load_factor is None
        changes = compare_results(before, result, paired=paired) if before is not None else []
        if self.json:
            listed = result.as_json()
            for row, change in zip(listed, changes, strict=True) if changes else ():
                row["what_if"] = {key: value for key, value in change.items() if key != "policy"}
            print(json_text.dumps(listed, indent=2, allow_nan=False))
        elif before is not None:
            print_results(f"{title}; {self.what_if.title(self.reading.load_factor)}", changes, before, result, paired=paired)
        else:
            print_result(result, title)

    def _seen(self, experiment: Experiment) -> tuple[str, ...]:
        """The models that were trained or chosen on days that count. Without --seen they are refused."""
        from queuewise.cli.console import note
        from queuewise.evaluation.seen_days import find_seen

        if experiment.workload.generated:
            return ()
        counted = experiment.plan.counted(len(experiment.workload))
        seen = find_seen(self.policy, experiment.workload, self.workload, self.reading.load_factor, counted)
        if not self.seen:
            seen.refuse()
        for remark in seen.remarks:
            note(remark)
        return tuple(seen.seen)

    def _remark(self, experiment: Experiment, before: list[Cell], cells: list[Cell], result: Result) -> int:
        """Print what a user should know before believing the table. Returns the exit code."""
        from queuewise.cli.console import note
        from queuewise.evaluation import remarks
        from queuewise.policies.replaying import known_estimates

        workload, cluster, settings = experiment.workload, experiment.cluster, experiment.settings
        estimates, known = known_estimates(workload, cluster, settings.estimates, settings.seed)
        waits = [(cell.metrics.get("wait_s") or {}).get("p95") for cell in cells]
        found = remarks.before(workload, cluster, self.policy, known.values, estimates)
        found += remarks.after(workload, cluster, waits, [standing.mean for standing in result.standings])
        rejected = max(int(cell.metrics.get("rejected") or 0) for cell in cells)
        why = same_lines(rejection_lines(before), rejection_lines(cells)) if before else rejection_lines(cells)
        for remark in (*why, *found):
            note(remark)
        return remarks.exit_code(rejected, max(int(cell.metrics["jobs"]) for cell in cells), allowed=self.allow_rejected)

    def _check(self) -> None:
        from queuewise.cli.console import check_policies
        from queuewise.errors import InputError

        if not self.policy:
            raise InputError("no policy given", hint="add --policy fcfs; repeat --policy to compare several")
        check_policies(self.policy, self.max_wait, self.model_sha256)
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"--threads {self.threads} is too few", hint="use 1 or more")
        if self.report and not self.out:
            raise InputError("--report needs a run folder", hint="add --out DIR")
        if self.report:
            from queuewise.report.figures import check_matplotlib

            check_matplotlib()

    def _experiments(self) -> tuple[Experiment | None, Experiment]:
        """The experiment as it is, if something is changed, and the one that is asked for."""
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.evaluation.planning import PlanOptions, plan_experiment
        from queuewise.policies.budgets import Budgets

        reading = replace(self.reading, load_factor=None)
        own_args = parse_model_args(self.workload_args, self.workload)
        loaded, cluster = reading.load_with_cluster(self.workload, self.cluster, self.jobs, self.seed, note, own_args)
        given = {f.name: getattr(self, f.name) for f in fields(PlanOptions) if f.name not in ("starts", "conditions", "budgets")}
        options = PlanOptions(
            **given,
            starts=self._starts(),
            conditions=read_conditions(self.conditions, loaded.workload),
            budgets=Budgets(self.milp_work, self.plan_budget, self.plan_samples),
        )

        def draw(jobs: int, seed: int) -> Workload:
            """A window as training draws it: for the size of the cluster, unless --workload-args says otherwise."""
            return reading.load(self.workload, jobs, seed, args=args_on_cluster(self.workload, cluster) | own_args).workload

        from_model = loaded.format.startswith("model:")
        as_is = plan_experiment(loaded.workload, cluster, self.policy, options, draw if from_model else None)
        if from_model and as_is.plan.protocol == "blocks" and self.jobs is not None:
            raise InputError("windows of blocks of workload models have jobs of their own: --jobs has no effect", hint="use --window-jobs")
        if not self.what_if.changes_nodes and self.reading.load_factor is None:
            return None, as_is
        faster, machine = self.reading.faster(loaded.workload), self.what_if.cluster(cluster)
        moved = move_with_load(options.conditions, loaded.workload, self.reading.load_factor)
        changed = replace(options, conditions=self.what_if.conditions(moved, machine, float(faster.submit[0])))
        draw_faster = (lambda jobs, seed: self.reading.faster(draw(jobs, seed))) if from_model else None
        experiment = plan_experiment(faster, machine, self.policy, changed, draw_faster)
        return as_is, replace(experiment, what_if=self.what_if.title(self.reading.load_factor))

    def _starts(self) -> list[int] | None:
        from queuewise.errors import InputError

        if self.starts is None:
            return None
        try:
            return [int(part) for part in self.starts.split(",")]
        except ValueError:
            raise InputError(f"--starts {self.starts!r} is not a list of job numbers", hint="for example --starts 0,1024,2048") from None


def rejection_lines(cells: list[Cell]) -> list[str]:
    """Why jobs of a replay can never run on the cluster: of the replay in which most were rejected, as they are about the same in all."""
    most = max(cells, key=lambda cell: int(cell.metrics.get("rejected") or 0))
    of_several = " (in one of the replays)" if len(cells) > 1 else ""
    return [line + of_several for line in most.rejections]


def describe_plan(plan: Plan, workload: Workload, seed: int) -> str:
    """One line about what is compared."""
    windows = plan.windows
    if plan.protocol == "days":
        first = windows[0]
        counted = f"{first.stop - first.start - first.counted:,} of {len(workload):,} jobs"
        unit = {None: "too short for intervals", 86_400.0: "by day"}.get(plan.unit_s, "by six hours, because there are few days")
        shaken = f"{len(windows)} replays per policy, with submissions shaken in all but the first" if len(windows) > 1 else "one replay"
        return f"days: {counted} count, {unit}; {shaken}"
    labels = ", ".join(window.label for window in windows)
    return f"{plan.protocol}: {len(windows)} windows, {plan.distinct_jobs:,} distinct jobs, seed {seed}: {labels}"


def print_result(result: Result, title: str) -> None:
    """The table that evaluate and compare print; two, scores and then waits, if the terminal is narrow."""
    from queuewise.cli.console import fits, note, print_table
    from queuewise.report.readable import figure
    from queuewise.report.text_tables import BESIDE, LEFT_OUT_FIRST, score_digits, score_table

    columns, rows = score_table(result)
    waits = len(columns) - len(BESIDE)
    parts = [slice(1, None)] if fits(columns, rows) else [slice(1, waits), slice(waits, None)]
    for number, part in enumerate(parts):
        shown = ["policy", *columns[part]]
        drop_first = [shown.index(name) for name in LEFT_OUT_FIRST if name in shown]
        print_table(shown, [[row[0], *row[part]] for row in rows], title="" if number else title, drop_first=drop_first)
    for sentence in result.legend:
        note(sentence)
    if result.lower_bound is not None:
        note(f"lower bound for any policy: {figure(result.lower_bound, score_digits(result))} (see docs/evaluation.md)")
    if any(s.ci95 is None for s in result.standings):
        note("intervals need two windows or ten units of time, and enough that are not 0; without them, no policy is called better")
