"""Score functions of a user, compiled: the wrappers through which the kernels call them.

The engine has one signature for all functions that score jobs and one for those that score nodes. So a new function
costs only its own compilation, about a second, and the engine stays as it is. The score of a function that uses only
`job` never changes: it is called once per job and then sorts like a built-in order. Division by zero gives inf, as in
NumPy; an index outside `state` is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit, typeof, types

from queuewise.errors import InputError
from queuewise.policies.records import ClusterRecord, Demand, Job, Node, Queue, UserRecord
from queuewise.policies.user_code import (
    HOLD,
    HOLD_ANSWERS,
    JOB_PARAMETERS,
    NODE_PARAMETERS,
    NotANumber,
    UserCode,
    check_function,
    find_user_code,
    uncompilable,
)
from queuewise.sim import queue
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.rules import NODE_SCORING_SIGNATURE, SCORING_SIGNATURE, Order, scoring_function
from queuewise.sim.core.state import Counts
from queuewise.sim.core.tables import F64
from queuewise.sim.core.watch import run_watched
from queuewise.sim.queue import Records
from queuewise.sim.queue.user_work import work_at

_work_at = njit(error_model="numpy", nogil=True)(work_at.py_func if hasattr(work_at, "py_func") else work_at)
OPTIONS = {"error_model": "numpy", "nogil": True, "boundscheck": True}

# {call} is the user's function with the parameters it takes. Records that it does not take are not built.
SCORE_JOBS = """
def score(facts, pending, number, now, outlook, users, params, out):
    {queue}
    {cluster}
    state = outlook[{outlook_size}:]
    params = params[:{num_params}]
    for i in range(number):
        row = facts[pending[i]]
        job = Job({job})
        {user}
        value = {call}
        if not value {valid}:
            raise NotANumber({reference!r}, row.index)
        out[i] = value
"""
SCORE_NODES = """
def score(facts, nodes, number, demand, params, out):
    job = Demand({demand})
    params = params[:{num_params}]
    for i in range(number):
        row = facts[nodes[i]]
        node = Node({node})
        value = {call}
        if not value {valid}:
            raise NotANumber({reference!r}, row.index)
        out[i] = value
"""
EXAMPLES: Mapping[str, Any] = {"now": 0.0, "state": np.zeros(1), "params": np.zeros(1)}  # of parameters that are not records


@dataclass(frozen=True, eq=False)
class UserScore:
    """A score function, compiled and ready to use."""

    own: UserCode
    scorer: Callable[..., None]
    compile_s: float
    hold: UserScore | None = None

    def make(self, given: Sequence[float] | None) -> Order:
        """The order that it defines, with these parameters or those of its file."""
        params = self.params_of(given)
        used = self.own.used_parameters | (self.hold.own.used_parameters if self.hold else set())
        if self.own.used_parameters <= {"job", "params"}:
            order = Order(once=partial(self._score_once, params), params=params)
        else:
            order = Order(function=self.scorer, params=params)
        return replace(
            order,
            hold=self.hold.scorer if self.hold else None,
            looks_around="cluster" in used,
            looks_at_users="user" in used,
            memory=self.own.state_size,
        )

    def params_of(self, given: Sequence[float] | None) -> F64:
        """The numbers for this function, as many as its file has."""
        stated = self.own.params
        if given is None or not self.own.takes_params:
            return stated
        params = np.array(given, np.float64)
        if params.shape != stated.shape or not np.isfinite(params).all():
            raise InputError(
                f"{self.own.name} takes {len(stated)} finite parameters, not {np.array2string(params, threshold=4)}",
                where=self.own.where,
                hint="give as many numbers as PARAMS of the file has",
            )
        return params

    def _score_once(self, given: F64, blocks: Iterator[Records]) -> F64:
        """The scores of all jobs, whose facts come in blocks."""
        count = Counts()
        outlook, params, users = np.zeros(queue.OUTLOOK_SIZE + self.own.state_size), np.zeros(queue.PARAMS_SIZE), np.zeros(0)
        params[: len(given)] = given

        def score(facts: Records) -> F64:
            scores = np.empty(len(facts))
            count.user_calls += 1
            self.scorer(facts, np.arange(len(facts), dtype=np.int32), len(facts), 0.0, outlook, users, params, scores)
            count.user_calls += 1
            return scores

        def work() -> F64:
            with np.errstate(all="ignore"):
                return np.concatenate([score(facts) for facts in blocks])

        return run_watched(work, count, self.own.time_limit_s)


def check_score(reference: str, parameters: Mapping[str, type | None]) -> UserCode:
    """The function that a reference names, checked but not compiled."""
    own = find_user_code(reference)
    if own.is_class:
        raise InputError(
            f"{own.name} is a class", where=own.where, hint="a class is a complete policy; an order or a placement is a function"
        )
    check_function(own, parameters)
    return own


def job_score(reference: str) -> UserScore:
    """A function of job, now, queue, cluster, user, params and state, compiled, with the one that holds jobs back."""
    own = check_score(reference, JOB_PARAMETERS)
    made = _compiled(own.reference, own.module, SCORE_JOBS)
    if own.hold is None:
        return made
    check_function(own.hold, JOB_PARAMETERS)
    hold = _compiled(own.hold.reference, own.module, SCORE_JOBS)
    return replace(made, hold=hold, compile_s=made.compile_s + hold.compile_s)


def node_score(reference: str) -> UserScore:
    """A function of node, job and params, compiled."""
    own = check_score(reference, NODE_PARAMETERS)
    return _compiled(own.reference, own.module, SCORE_NODES)


@lru_cache(maxsize=64)
def _compiled(reference: str, module: ModuleType, template: str) -> UserScore:
    """Compile once per version of the file: a changed file is another module."""
    own = find_user_code(reference)
    began = time.perf_counter()
    function = _compile_function(own, JOB_PARAMETERS if template is SCORE_JOBS else NODE_PARAMETERS)
    scope = {
        "function": function,
        "NotANumber": NotANumber,
        "Job": Job,
        "Node": Node,
        "Demand": Demand,
        "sum_up": _sum_up,
        "glance": _glance,
        "user_now": _user_now,
    }
    exec(_source(own, template), scope)
    signature = SCORING_SIGNATURE if template is SCORE_JOBS else NODE_SCORING_SIGNATURE
    scorer = scoring_function(scope["score"], signature=signature, cache=False)
    return UserScore(own, scorer, time.perf_counter() - began)


def _source(own: UserCode, template: str) -> str:
    def from_row(record: type[tuple[Any, ...]]) -> str:
        return ", ".join(f"row.{field}" for field in record._fields)  # type: ignore[attr-defined]

    return template.format(
        queue="queue = sum_up(facts, pending, number, now)" if "queue" in own.parameters else "",
        cluster="cluster = glance(outlook)" if "cluster" in own.parameters else "",
        user="user = user_now(users, row.user, now)" if "user" in own.parameters else "",
        outlook_size=queue.OUTLOOK_SIZE,
        num_params=len(own.params),
        valid=">= 0.0" if own.name.endswith(HOLD) else "== value",
        job=from_row(Job),
        node=from_row(Node),
        demand=", ".join(f"demand[{i}]" for i in range(len(Demand._fields))),
        call=f"function({', '.join(own.parameters)})",
        reference=own.reference,
    )


@njit(error_model="numpy", nogil=True)
def _sum_up(facts: Any, pending: Any, number: int, now: float) -> Any:
    """Totals over the waiting jobs."""
    width = 0.0
    work = 0.0
    oldest = now
    for i in range(number):
        job = facts[pending[i]]
        width += job.width
        work += job.width * job.estimate
        oldest = min(oldest, job.submit)
    return Queue(number, width, work, oldest)


@njit(error_model="numpy", nogil=True)
def _glance(outlook: Any) -> Any:
    """The state of the cluster."""
    if outlook[queue.GPUS] > 0:
        used = 1.0 - outlook[queue.FREE_GPUS] / outlook[queue.GPUS]
    elif outlook[queue.CORES] < np.inf:
        used = 1.0 - outlook[queue.FREE_CORES] / outlook[queue.CORES]
    else:
        used = 1.0 - outlook[queue.FREE_MEM_MIB] / outlook[queue.MEM_MIB]
    return ClusterRecord(
        outlook[queue.NODES],
        outlook[queue.GPUS],
        outlook[queue.FREE_GPUS],
        outlook[queue.CORES],
        outlook[queue.FREE_CORES],
        outlook[queue.MEM_MIB],
        outlook[queue.FREE_MEM_MIB],
        outlook[queue.RUNNING_NOW],
        used,
    )


@njit(error_model="numpy", nogil=True)
def _user_now(users: Any, user: int, now: float) -> Any:
    """What the job's user has now."""
    if user < 0:
        return UserRecord(0.0, 0.0, 0.0)
    at = user * queue.USER_SIZE
    rate = users[at + queue.USER_RATE] / 1000.0
    work = _work_at(users[at + queue.USER_WORK], rate, now - users[at + queue.USER_TIME])
    return UserRecord(users[at + queue.USER_JOBS], rate, work)


def _compile_function(own: UserCode, parameters: Mapping[str, type | None]) -> Any:
    function = _with_compiled_neighbours(own.value)
    if JIT_DISABLED:
        return function
    examples = [EXAMPLES[name] if parameters[name] is None else parameters[name]() for name in own.parameters]  # type: ignore[misc]
    try:
        function.compile(tuple(typeof(example) for example in examples))
    except Exception as error:  # the compiler fails in many ways
        raise uncompilable(own, error) from None
    (signature,) = function.nopython_signatures
    if not isinstance(signature.return_type, types.Integer | types.Float | types.Boolean):
        found = "None on some path" if isinstance(signature.return_type, types.Optional) else str(signature.return_type)
        hint = HOLD_ANSWERS if own.name.endswith(HOLD) else "return one number: the lowest goes first"
        raise InputError(f"{own.name} returns {found}, not a number", where=own.where, hint=hint)
    return function


def _with_compiled_neighbours(function: FunctionType) -> Any:
    """Compile the function in a scope where the other functions of its file are compiled too: it may call them."""
    scope = dict(function.__globals__)

    def compiled(plain: FunctionType) -> Any:
        return njit(**OPTIONS)(FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__))  # type: ignore[call-overload]

    for name, value in function.__globals__.items():
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            scope[name] = compiled(value)
    return compiled(function)
