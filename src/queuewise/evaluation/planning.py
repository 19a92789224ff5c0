"""From options to an experiment: which protocol, which windows or days, how they are replayed. Options of another protocol are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings
from queuewise.evaluation.protocol import DEFAULT_SPLIT, PROTOCOLS, make_plan, parse_split
from queuewise.policies import parse_policy
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.policies.names import parse_bound
from queuewise.workload.estimates import check_known, default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.transform import distinct_ids

WINDOW_JOBS, SHAKES = 1024, 8
PROTOCOLS_WITH = {  # options that choose what is replayed and counted -> the protocols that have them
    "windows": ("windows", "blocks", "packing"),
    "window_jobs": ("windows", "blocks"),
    "starts": ("windows", "rlscheduler"),
    "overlap": ("windows", "blocks"),
    "start": ("windows", "blocks"),
    "block": ("days", "blocks"),
    "split": ("days", "blocks"),
    "warm": ("days",),
    "shakes": ("days",),
    "warmup": ("windows", "blocks", "replay", "rlscheduler", "packing"),
    "cooldown": ("windows", "blocks", "replay", "rlscheduler", "packing"),
}
OF_LOGS = {"windows": ("start",), "blocks": ("start", "split", "overlap")}  # protocol -> options that workload models do not have


@dataclass(frozen=True)
class PlanOptions:
    """Options of `queuewise evaluate` with the same names; None is the default of the protocol."""

    protocol: str | None = None
    windows: int | None = None
    window_jobs: int | None = None
    starts: Sequence[int] | None = None
    overlap: bool = False
    start: str | None = None
    block: str | None = None
    split: str | None = None
    warm: str | None = None
    shakes: int | None = None
    warmup: float = 0.0
    cooldown: float = 0.0
    dispatch: str | None = None
    estimates: str | None = None
    kill_at_limit: bool = False
    max_wait: str | None = None
    conditions: Conditions = PERFECT
    seed: int = 0
    budgets: Budgets = USUAL_BUDGETS

    def protocol_for(self, workload: Workload, from_model: bool) -> str:
        """The protocol. Options that it does not have are refused."""
        given = [name for name in PROTOCOLS_WITH if self._is_given(name)]
        protocol = self.protocol or ("windows" if from_model or {"windows", "window_jobs", "starts", "overlap"} & set(given) else "days")
        if protocol == "days" and from_model:
            raise InputError(f"{workload.name} is a workload model, which has no days to hold back", hint="use --protocol windows")
        for name in given:
            flag, having = f"--{name.replace('_', '-')}", PROTOCOLS_WITH[name]
            if protocol in PROTOCOLS and protocol not in having:
                raise InputError(f"protocol {protocol} has no {flag}", hint=f"use --protocol {' or '.join(having)}, or omit it")
            if from_model and name in OF_LOGS.get(protocol, ()):
                raise InputError(f"protocol {protocol} has no {flag} for a workload model such as {workload.name}", hint="it is for logs")
        if self.windows is not None and self.starts is not None and self.windows != len(self.starts):
            raise InputError(f"--starts names {len(self.starts)} windows, not the {self.windows} of --windows", hint="omit --windows")
        return protocol

    def _is_given(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and (bool(value) if isinstance(value, bool | float) else True)

    def start_of(self, protocol: str, from_model: bool) -> str:
        """How windows begin: warm or empty."""
        trimmed = bool(self.warmup or self.cooldown)
        if trimmed and self.start == "warm":
            raise InputError("--start warm has no --warmup or --cooldown", hint="use --start empty")
        takes_start = protocol in PROTOCOLS_WITH["start"] and not from_model
        return self.start or ("warm" if takes_start and not trimmed else "empty")


def plan_experiment(
    workload: Workload,
    cluster: Cluster,
    policies: Sequence[str],
    options: PlanOptions,
    draw: Callable[[int, int], Workload] | None,
) -> Experiment:
    """The experiment that the options describe. `draw` draws (jobs, seed) from the workload's model, if it is one."""
    from_model = draw is not None
    split = DEFAULT_SPLIT if options.split is None else parse_split(options.split)
    plan = make_plan(
        options.protocol_for(workload, from_model),
        workload,
        num_windows=options.windows,
        overlap=options.overlap,
        window_jobs=WINDOW_JOBS if options.window_jobs is None else options.window_jobs,
        seed=options.seed,
        starts=None if options.starts is None else list(options.starts),
        block=options.block or "report",
        from_model=from_model,
        split=split,
        warm_s=None if options.warm is None else parse_bound(options.warm, "--warm"),
        shakes=SHAKES if options.shakes is None else options.shakes,
    )
    for name, fixed, chosen in (("dispatch", plan.dispatch, options.dispatch), ("estimates", plan.estimates, options.estimates)):
        if fixed and chosen and fixed != chosen:
            raise InputError(
                f"protocol {plan.protocol} fixes --{name} to {fixed}, not {chosen}",
                hint="use --protocol windows with --starts to evaluate the same windows with other settings",
            )
    estimates = plan.estimates or options.estimates or default_estimates(workload)
    for known in {estimates}.union(*(parse_policy(policy).own_estimates for policy in policies)):
        check_known(workload, known)
    settings = ReplaySettings(
        dispatch=plan.dispatch or options.dispatch or "reorder",
        estimates=estimates,
        kill_at_limit=options.kill_at_limit,
        max_wait=options.max_wait,
        seed=options.seed,
        warmup=options.warmup,
        cooldown=options.cooldown,
        split=split,
        start=options.start_of(plan.protocol, from_model),
        conditions=options.conditions,
        budgets=options.budgets,
    )
    return Experiment(distinct_ids(workload) if settings.start == "warm" else workload, cluster, plan, settings, draw)


def parse_percent(text: str) -> float:
    """`1%` as a share."""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InputError(f"--same {text!r} is not a percentage", hint="for example 1%")
    return share
