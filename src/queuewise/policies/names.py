"""Policy names: `order[+backfill[/depth][:order]][~bound][@placement[:option]]`, parsed here and nowhere else.

After the backfill `slurm`, no order follows, but the file with its parameters: `+slurm[:FILE]`.

`FILE.py:NAME` may stand for an order or a placement: a function of the user's own (`user_code`). `model:RUN` may stand for an order
too: a trained network, which without a backfill plays as it was trained. An order may be followed by estimates of its own, as in
`saf:predicted`. `wise` alone is a whole policy, WISE_POLICY.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from queuewise.errors import InputError, unknown_name
from queuewise.policies.backfill import BACKFILLS, SLURM
from queuewise.policies.found_rules import read_rule, rule_file
from queuewise.policies.known import Jobs, OracleJobs
from queuewise.policies.milp import solver_of
from queuewise.policies.ordering import ORDERS, order_rule
from queuewise.policies.placing import PLACEMENTS, SOLVED_PLACEMENTS, parse_placement
from queuewise.policies.planner_names import split_planner
from queuewise.policies.preemptive import PREEMPTIVE, parse_option
from queuewise.policies.slurm_config import slurm_loops
from queuewise.policies.user_classes import check_class
from queuewise.policies.user_code import JOB_PARAMETERS, NODE_PARAMETERS, SUFFIX, UserCode, find_user_code, is_reference
from queuewise.policies.user_scores import UserScore, check_score, job_score, node_score
from queuewise.prefixes import has_prefix
from queuewise.runs import file_name
from queuewise.sim import queue
from queuewise.sim.core.rules import NO_LOOPS, Order, Rules
from queuewise.sim.core.state import NO_LIMIT
from queuewise.sim.placement import BY_SCORE, BY_SOLVER
from queuewise.workload.estimates import check_estimate
from queuewise.workload.plain_numbers import decimal_number, whole_number

DISPATCHES = {"reorder": queue.REORDER, "commit": queue.COMMIT}
GRAMMAR = (
    "order[+backfill[/depth][:order]][~bound][@placement], e.g. sjf+easy~3d@pack; +slurm[:FILE] takes a file instead; FILE.py:NAME stands "
    "for an order or placement of your own, model:RUN is a trained network; plan:POLICY, portfolio:A,B,… and recent:A,B,… plan"
)
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BOUND = re.compile(r"~(?!/)")  # ~/ begins a path
MODEL = "model:"
NOT_IN_RUNS = "+~@"  # characters that end the path of a run in the name of a policy
NOT_FOR_MODELS = ("defrag", SLURM)  # backfills
WISE = "wise"  # the policy to recommend: this order, with reservations by the estimates of the replay and a bound on waiting
WISE_ORDER = ("aged", "predicted")
WISE_POLICY = f"{WISE}+easy:sjf:predicted~3d"
RLTUNE = "rltune"  # RLTune's numbers of orders are accepted in its name: rltune:4 is sjf
RLTUNE_ORDERS = (
    "fcfs", "lcfs", "smallest", "largest", "sjf", "ljf", "saf", "laf", "sexp", "lexp", "srf", "lrf", "rltune-multifactor", "f1", "wfp3",
    "unicep",
)  # fmt: skip
FILLED = ("random", "power")  # orders that imply greedy backfill
AS_TRAINED = ""  # backfill and placement of a model whose name has none
RUN_NAMES = (
    "write model:RUN[+backfill[/depth]][~bound][@placement] with the folder of a run or a model file; its path has no +, ~ or @, "
    "but for a leading ~/"
)


@dataclass(frozen=True)
class Policy:
    """A parsed name."""

    order: str
    backfill: str = "none"
    depth: int = NO_LIMIT
    backfill_order: str = ""  # empty: the same order
    placement: str = "pack"
    level: float = 0.0  # option of a preemptive policy
    estimates: str = ""  # of the order; empty: those of the replay
    backfill_estimates: str = ""  # of the backfill order, if it is named; empty: those of the replay
    max_wait_s: float = np.inf
    slurm_config: str = ""  # file with the parameters of the backfill slurm; empty: Slurm's defaults
    params: tuple[float, ...] | None = None  # for its own functions; None: the PARAMS of their file
    planner: str = ""  # plan, portfolio or recent: it acts by its members, whose names follow
    members: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The run or model file whose network gives the order; empty if it is no model."""
        return self.order.removeprefix(MODEL) if self.order.startswith(MODEL) else ""

    @property
    def decides_in_python(self) -> bool:
        """Whether it is a class of the user's own."""
        return not self.planner and is_reference(self.order) and find_user_code(self.order).is_class

    def bounded(self, max_wait: str | None) -> Policy:
        """The policy with this bound on waiting, unless it has one."""
        if max_wait is None or self.max_wait_s < np.inf:
            return self
        return dataclasses.replace(self, max_wait_s=parse_bound(max_wait, f"max_wait {max_wait!r}"))

    @property
    def own_estimates(self) -> tuple[str, ...]:
        """The names of estimates that its orders use instead of those of the replay."""
        if self.planner:
            return tuple(dict.fromkeys(name for one in self.members for name in parse_policy(one).own_estimates))
        return tuple(dict.fromkeys(name for name in (self.estimates, self.backfill_estimates) if name))

    def rules(self, jobs: Jobs, dispatch: str, params: Sequence[float] | None = None) -> Rules:
        """The policy in numbers. `params` are for its own functions, instead of those it has."""
        params = self.params if params is None else params
        if self.model:
            raise InputError(f"{self.order} is a trained network, which only whole replays know", hint="use queuewise.simulate")
        if self.planner:
            raise InputError(f"{self.order} is a planner, which only whole replays know", hint="use queuewise.simulate")
        if params is not None and not any(own.takes_params for own in self.own):
            raise InputError("none of the policy's functions takes params", hint="add a parameter params, and PARAMS to the file")
        rule, option, node_scorer = placement_rule(self.placement)
        node_params = node_score(self.placement).params_of(params) if is_reference(self.placement) else np.zeros(1)
        solver = solver_of(self.placement, jobs) if rule == BY_SOLVER else None
        limit = min((own.time_limit_s for own in self.own), default=np.inf)
        if self.backfill_order not in ("", self.order) and is_reference(self.backfill_order) and job_score(self.backfill_order).hold:
            raise InputError(f"{self.backfill_order} holds jobs, but it is only the backfill order", hint="let the first order hold them")
        if self.order in PREEMPTIVE:
            if parse_dispatch(dispatch) == queue.COMMIT:
                raise InputError(f"{self.order} cannot commit to a job: each start changes its order", hint="use --dispatch reorder")
            made = PREEMPTIVE[self.order].make(jobs, self.level)
            return dataclasses.replace(
                made, rule=rule, rule_option=option, node_scorer=node_scorer, node_params=node_params, solver=solver, seed=jobs.seed,
                guessed=jobs.guessed,
                time_limit_s=limit, max_wait_s=self.max_wait_s,
            )  # fmt: skip
        first = self.order, self.estimates
        second = (self.backfill_order, self.backfill_estimates) if self.backfill_order else first
        return Rules(
            order=Order() if self.decides_in_python else _make_order(*first, jobs, params),
            backfill_order=None if second == first else _make_order(*second, jobs, params),
            backfill=BACKFILLS[self.backfill].code,
            depth=self.depth,
            slurm=slurm_loops(self.slurm_config) if self.backfill == SLURM else NO_LOOPS,
            rule=rule,
            rule_option=option,
            node_scorer=node_scorer,
            node_params=node_params,
            solver=solver,
            dispatch=parse_dispatch(dispatch),
            max_wait_s=self.max_wait_s,
            seed=jobs.seed,
            time_limit_s=limit,
            guessed=jobs.guessed,
        )

    @property
    def sees(self) -> type[Jobs]:
        """What the policy may know about jobs."""
        return OracleJobs if self.order in PREEMPTIVE and PREEMPTIVE[self.order].oracle else Jobs

    @property
    def history(self) -> set[str]:
        """The columns of the history of jobs that its orders, or its forecasts, look at."""
        if self.planner:
            return {"predicted", "predicted_low", "predicted_high"}.union(*(parse_policy(one).history for one in self.members))
        named = (ORDERS[name] for name in (self.order, self.backfill_order) if name in ORDERS)
        predicts = {"predicted"} if any(rule.uses_predictions for rule in named) else set()
        return predicts.union(*(own.history for own in self.own))

    @property
    def own(self) -> list[UserCode]:
        """The user's own functions in it, with those that hold jobs back."""
        if self.planner:
            return [own for one in self.members for own in parse_policy(one).own]
        named = [find_user_code(part) for part in (self.order, self.backfill_order, self.placement) if is_reference(part)]
        return named + [own.hold for own in named if not own.is_class and own.hold is not None]

    def compile(self) -> list[UserScore]:
        """Compile the user's own functions in it, as the first replay would."""
        if self.planner:
            return [score for one in self.members for score in parse_policy(one).compile()]
        named = () if self.decides_in_python else (self.order, self.backfill_order)
        orders = [job_score(part) for part in named if is_reference(part)]
        return orders + ([node_score(self.placement)] if is_reference(self.placement) else [])


def placement_rule(text: str) -> tuple[int, int, Callable[..., None] | None]:
    """The rule of a placement, its option, and the function that scores nodes if it is the user's own."""
    if is_reference(text):
        return BY_SCORE, NO_LIMIT, node_score(text).scorer
    return *parse_placement(text), None


def _make_order(name: str, estimates: str, jobs: Jobs, params: Sequence[float] | None) -> Order:
    made = (
        job_score(name).make(params) if is_reference(name) else order_rule(name).make(jobs.estimated_by(estimates) if estimates else jobs)
    )
    return dataclasses.replace(made, estimate=jobs.own_estimates[estimates]) if estimates else made


def _check_order(name: str, estimates: str) -> None:
    if is_reference(name):
        check_score(name, JOB_PARAMETERS)
    else:
        order_rule(name)
    if estimates:
        check_estimate(estimates)


def _check_placement(text: str) -> None:
    if is_reference(text):
        check_score(text, NODE_PARAMETERS)
    else:
        parse_placement(text)


def parse_dispatch(name: str) -> int:
    if name not in DISPATCHES:
        raise unknown_name("dispatch", name, DISPATCHES)
    return DISPATCHES[name]


def parse_bound(text: str, where: str) -> float:
    """Seconds of a bound on waiting: a number with s, m, h or d."""
    number = decimal_number(text[:-1]) if isinstance(text, str) and text[-1:] in SECONDS else None
    seconds = 0.0 if number is None else number * SECONDS[text[-1]]
    if not 0 < seconds < np.inf:
        raise InputError(f"{where}: {text!r} is not a time", hint="write a number above 0 with s, m, h or d, for example 3d")
    return seconds


def split_estimates(text: str) -> tuple[str, str]:
    """An order and the estimates after it, if any: `saf:predicted`, `mine.py:score:predicted`. `wise` goes by predictions."""
    if is_reference(text):
        file, _, rest = text.partition(SUFFIX + ":")
        function, _, estimates = rest.partition(":")
        return f"{file}{SUFFIX}:{function}" if rest else text, estimates
    order, _, estimates = text.partition(":")
    if order == RLTUNE:
        number, _, estimates = estimates.partition(":")
        return _rltune_order(number), estimates
    return (WISE_ORDER[0], estimates or WISE_ORDER[1]) if order == WISE else (order, estimates)


def _rltune_order(number: str) -> str:
    """The order that RLTune's program has under this number."""
    at = whole_number(number)
    if at is None or at >= len(RLTUNE_ORDERS):
        known = ", ".join(f"{index} {order}" for index, order in enumerate(RLTUNE_ORDERS))
        raise InputError(f"{RLTUNE}:{number} is no order of RLTune", hint=f"its numbers are {known}")
    return RLTUNE_ORDERS[at]


def check_text(name: object) -> None:
    """Raise an InputError if this is no text, or one that only looks like a policy's name."""
    if not isinstance(name, str):
        raise InputError(f"policy {name!r} is not a name", hint=GRAMMAR)
    if name != name.strip():
        raise InputError(f"policy {name!r} has blanks around it", hint="leave them out")


def parse_policy(name: str) -> Policy:
    """Check a name and take it apart."""
    check_text(name)
    try:
        return _parse(name)
    except InputError as error:
        if not name.startswith(MODEL) or error.hint == RUN_NAMES or error.where:
            raise
        raise InputError(error.message, hint=f"{error.hint}; {RUN_NAMES}") from None


def _parse(name: str) -> Policy:
    if planned := split_planner(name):
        return _parse_planned(name, *planned)
    scheduling, at, placement = name.partition("@")
    if at and not placement:
        raise InputError(f"policy {name!r} has nothing after @", hint=f"placements: {', '.join(PLACEMENTS)}")
    scheduling, *bounds = BOUND.split(scheduling)
    if scheduling == WISE:
        scheduling, usual_bound = BOUND.split(WISE_POLICY)
        bounds = bounds or [usual_bound]
    if len(bounds) > 1:
        raise InputError(f"policy {name!r} has two bounds on waiting", hint=GRAMMAR)
    if not scheduling:
        raise InputError(f"policy {name!r} names no order", hint=GRAMMAR)
    with_own_message = MODEL, SUFFIX + ":"
    empty = next((part for part in (*scheduling.split("+"), placement) if part.endswith(":") and not part.endswith(with_own_message)), None)
    if empty:
        raise InputError(f"policy {name!r} has nothing after {empty!r}", hint=f"leave the colon out: {empty[:-1]}")
    policy = _parse_model(name, scheduling) if scheduling.startswith(MODEL) else _parse_scheduling(name, scheduling)
    if placement:
        _check_placement(placement)
        if policy.model and placement.partition(":")[0] in SOLVED_PLACEMENTS:
            raise InputError(f"policy {name!r}: a network places by the engine's rules", hint=f"placements: {', '.join(PLACEMENTS)}")
        policy = dataclasses.replace(policy, placement=placement)
    return dataclasses.replace(policy, max_wait_s=parse_bound(bounds[0], f"policy {name!r}")) if bounds else policy


def _parse_planned(name: str, planner: str, members: tuple[str, ...], depth: int) -> Policy:
    """A planner with its members, whose bounds and placements are their own."""
    for one in members:
        check_text(one)
        if (member := _parse(one)).planner or member.model or member.decides_in_python:
            raise InputError(f"policy {name!r}: {one} cannot be planned with", hint="take orders, with none, greedy or easy")
    return dataclasses.replace(_parse(members[0]), order=name, depth=depth, planner=planner, members=members, backfill_order="")


def _parse_model(name: str, scheduling: str) -> Policy:
    """`model:RUN[+backfill[/depth]]`."""
    run, plus, filling = scheduling.removeprefix(MODEL).partition("+")
    if not run:
        raise InputError(f"policy {name!r} names no run", hint=RUN_NAMES)
    check_run_name(run)
    found = rule_file(run)
    if found is not None:
        return _parse_rule(name, found, filling)
    policy = Policy(f"{MODEL}{run}", AS_TRAINED, placement=AS_TRAINED)
    if not plus:
        return policy
    rule = re.split("[/:]", filling)[0]
    if rule not in BACKFILLS or rule in NOT_FOR_MODELS or ":" in filling:
        known = ", ".join(other for other in BACKFILLS if other not in NOT_FOR_MODELS)
        raise InputError(f"policy {name!r}: {filling!r} is no backfill of a model, which are {known}", hint=RUN_NAMES)
    return _parse_backfill(name, filling, policy)


def check_run_name(run: str) -> None:
    """Raise an error if the path of a run has characters that mean something else in the name of a policy."""
    for character in NOT_IN_RUNS:
        if character in run.removeprefix("~/"):
            raise InputError(f"the path {run!r} of a run has a {character} in it", hint=RUN_NAMES)


def run_name(name: str) -> str:
    """The name of a new run folder, whatever the log is named like."""
    return file_name("".join("-" if character in NOT_IN_RUNS else character for character in name))


def _parse_rule(name: str, path: Path, filling: str) -> Policy:
    """A rule that was found, with its own backfill and bound, or with another backfill."""
    rule = read_rule(path)
    try:
        found = dataclasses.replace(_parse(rule.policy), params=rule.numbers)
    except InputError as error:
        raise InputError(f"cannot be played: {error.message}", where=str(path), hint=error.hint) from None
    return _parse_backfill(name, filling, found) if filling else found


def _parse_scheduling(name: str, scheduling: str) -> Policy:
    """The part of a name before the bound and the placement."""
    leading, plus, filling = scheduling.partition("+")
    if not leading:
        raise InputError(f"policy {name!r} names no order", hint=GRAMMAR)
    first, _, option = scheduling.partition(":")
    if first in PREEMPTIVE:
        return Policy(first, level=parse_option(first, option))
    if first == "defrag":
        order, estimates = split_estimates(option or "fcfs")
        _check_order(order, estimates)
        return Policy(order, "defrag", estimates=estimates)
    order, estimates = split_estimates(leading)
    if order in (*PREEMPTIVE, "defrag"):
        raise InputError(f"policy {name!r}: {order} leaves nothing to backfill", hint=f"write {order}, or {order}@pack")
    if is_reference(order) and find_user_code(order).is_class:
        check_class(order)
        if plus or estimates:
            raise InputError(f"policy {name!r}: a class decides itself what to backfill", hint=f"write {order}, or {order}@pack")
        return Policy(order)
    if leading.startswith(f"{WISE}:") and not plus:
        raise InputError(
            f"policy {name!r}: {WISE} goes by predictions; with other estimates it is an order only",
            hint=f"write {order}:{estimates}+easy:sjf:{estimates}~3d for the same rule",
        )
    if order in BACKFILLS and not plus:
        raise InputError(f"policy {name!r} has no order: {order} is a backfill rule", hint=f"write for example fcfs+{name}")
    if not is_reference(order) and order not in ORDERS:
        raise unknown_name("order", order, (*policy_names(), "defrag"))
    _check_order(order, estimates)
    if not plus:
        return Policy(order, "greedy" if order in FILLED else "none", estimates=estimates)
    return _parse_backfill(name, filling, Policy(order, estimates=estimates))


def _parse_backfill(name: str, filling: str, policy: Policy) -> Policy:
    """`backfill[/depth][:order]` or `slurm[:FILE]`, added to the policy."""
    rule, colon, second = filling.partition(":")
    rule, slash, depth = rule.partition("/")
    if rule not in BACKFILLS:
        raise unknown_name("backfill", rule, BACKFILLS)
    if rule == SLURM:
        if slash:
            raise InputError(f"policy {name!r}: {filling!r} is not slurm or slurm:FILE", hint="bf_max_job_test in FILE limits plans")
        slurm_loops(second)
        return dataclasses.replace(policy, backfill=SLURM, slurm_config=second)
    if rule == "none" and (slash or colon):
        raise InputError(f"policy {name!r}: none backfills no job, so it has no depth or order", hint="leave out what follows none")
    limit = whole_number(depth)
    if slash and not limit:
        raise InputError(f"policy {name!r}: depth {depth!r} is no positive number of at most nine digits", hint="for example fcfs+easy/32")
    order, estimates = split_estimates(second)
    if second:
        _check_order(order, estimates)
    if slash and (order or policy.order) == "drf":
        raise InputError(f"policy {name!r}: drf sorts the queue again after each start, so /D has no first D", hint="leave /D out")
    return dataclasses.replace(
        policy, backfill=rule, depth=NO_LIMIT if limit is None else limit, backfill_order=order, backfill_estimates=estimates
    )


def found_rule(name: str) -> Path | None:
    """The file of the rule behind a name, if it is that of a rule that was found."""
    return rule_file(re.split("[+@]|" + BOUND.pattern, name.removeprefix(MODEL))[0]) if name.startswith(MODEL) else None


def plays_apart(name: str) -> bool:
    """Whether another module replays policies of this name (`prefixes`). Rules that were found are replayed like any order."""
    return has_prefix(name) and found_rule(name) is None


def policy_names() -> tuple[str, ...]:
    """`wise`, and one name for each order (it combines with every backfill and placement) and preemptive policy (with every placement)."""
    return (WISE, *ORDERS, *PREEMPTIVE)
