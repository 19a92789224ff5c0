"""A policy with a deadline and a fallback: whatever happens to the policy, there is an answer that can be carried out."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError, QueuewiseError
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.answer_checks import problem_of
from queuewise.serve.forecast import Forecast
from queuewise.serve.live_policy import Decided, LivePolicy, load_policy
from queuewise.serve.policy_digest import digest_of
from queuewise.serve.snapshot_columns import SnapshotColumns

FALLBACKS = ("wise", "fcfs+easy")  # the first that can answer: wise goes by predictions, and there may be none
MODEL, FALLEN_BACK, TIMED_OUT, REJECTED = OUTCOMES = ("model", "fallback", "timeout", "rejected")

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    decided: Decided
    outcome: str  # one of OUTCOMES
    policy: str  # the one that decided
    elapsed_s: float
    problem: str = ""  # of the policy, if the fallback answered


class GuardedPolicy:
    """Decides by `policy`; if that takes longer than the deadline, fails or cannot be carried out, by the fallback: `wise` where all jobs
    have predictions and nothing else is named, else `fcfs+easy`.

    Asked by one thread at a time. The policy works in a thread of its own: one that is late goes on there, and until it has ended the
    fallback answers.
    """

    def __init__(self, policy: str, *, fallback: str | None = None, deadline_s: float | None = None, max_wait: str | None = None) -> None:
        self.deadline_s, self.max_wait = deadline_s, max_wait
        self._policy: LivePolicy = load_policy(policy, max_wait=max_wait)
        names = [name for name in FALLBACKS if name != policy] if fallback is None else [fallback]
        self._fallbacks = [load_policy(name, max_wait=max_wait) for name in names]
        self.digests = {name: digest_of(name) for name in (policy, *names)}  # as they were when they were loaded
        self.distrusted = ""  # why the fallback answers although the policy could
        self._worker: _Worker[Decided] | None = None
        self._forecasters = {name: _Forecaster(name, max_wait) for name in dict.fromkeys((policy, *names))}
        self.forecast_policy = ""  # whose the last forecast is
        self.forecast_problem = ""  # of the policy, if it is the fallback's

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def fallback(self) -> str:
        """The one that answers if it can."""
        return self._fallbacks[0].name

    @property
    def goes_by_predictions(self) -> bool:
        return any(one.goes_by_predictions for one in (self._policy, *self._fallbacks))

    def answer(self, snapshot: Snapshot, deadline_s: float | None = None) -> Answer:
        """Decide. An InputError means that the snapshot itself is refused."""
        began = time.perf_counter()
        if self.distrusted:
            return self._fall_back(snapshot, FALLEN_BACK, self.distrusted, began)
        limit = self.deadline_s if deadline_s is None else deadline_s
        outcome, problem = MODEL, ""
        try:
            decided = self._policy.decide(snapshot) if limit is None else self._in_time(snapshot, limit)
            if decided is None:
                outcome, problem = TIMED_OUT, f"no answer within {limit} s"
            elif problem := problem_of(decided, snapshot):
                outcome = FALLEN_BACK
            else:
                return Answer(decided, MODEL, self.name, time.perf_counter() - began)
        except Exception as error:  # whatever a policy does, there must be an answer
            outcome, problem = FALLEN_BACK, f"{type(error).__name__}: {error}"
        return self._fall_back(snapshot, outcome, problem, began)

    def answer_at_once(self, columns: SnapshotColumns, cluster: Cluster, deadline_s: float | None = None) -> Answer | None:
        """The same from columns, by the policy alone, in this thread. None: it cannot, or not in time, and `answer` must."""
        if self.distrusted or not self._policy.is_quick:
            return None
        began = time.perf_counter()
        limit = self.deadline_s if deadline_s is None else deadline_s
        try:
            decided = self._policy.decide_columns(columns, cluster)
        except Exception:  # `answer` meets it again, and says what it was
            return None
        elapsed = time.perf_counter() - began
        return None if decided is None or (limit is not None and elapsed > limit) else Answer(decided, MODEL, self.name, elapsed)

    def forecast(self, snapshot: Snapshot) -> Forecast | None:
        """When the waiting jobs would start, by the policy that answers or by the fallback. None: it could not be said in time."""
        self.forecast_policy = self.forecast_problem = ""
        names = [one.name for one in self._possible_fallbacks(snapshot)]
        for name in names if self.distrusted else dict.fromkeys((self.name, *names)):
            try:
                found = self._forecasters[name].ask(snapshot, self.deadline_s)
            except Exception as error:  # whatever a policy does, the queue has an order
                self.forecast_problem = self.forecast_problem or f"{name} has no forecast: {type(error).__name__}: {error}"[:300]
                continue
            if found is not None:
                self.forecast_policy = name
                return found
            self.forecast_problem = self.forecast_problem or f"{name} has no forecast within {self.deadline_s} s"
        return None

    def _possible_fallbacks(self, snapshot: Snapshot) -> list[LivePolicy]:
        predicted = all(one.job.predicted is not None for one in snapshot.jobs)
        possible = [one for one in self._fallbacks if predicted or not one.goes_by_predictions]
        return possible or self._fallbacks

    def _fall_back(self, snapshot: Snapshot, outcome: str, problem: str, began: float) -> Answer:
        failure: QueuewiseError = InputError("there is no fallback")
        for fallback in self._possible_fallbacks(snapshot):
            try:
                decided = fallback.decide(snapshot)
                wrong = problem_of(decided, snapshot)
            except QueuewiseError as refusal:
                failure = refusal
                continue
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if not wrong:
                return Answer(decided, outcome, fallback.name, time.perf_counter() - began, problem)
            failure = InputError(f"{fallback.name} cannot decide: {wrong}"[:300], where="snapshot", hint="report it with the snapshot")
        raise failure

    def _in_time(self, snapshot: Snapshot, limit: float) -> Decided | None:
        """The policy's answer, or None if it takes longer."""
        if self._worker is None:
            self._worker = _Worker(self._policy.decide)
        return self._worker.ask(snapshot, limit)


class _Forecaster:
    """Forecasts by a policy of its own: that of decisions may still be at work on one."""

    def __init__(self, name: str, max_wait: str | None) -> None:
        self._name, self._max_wait = name, max_wait
        self._policy: LivePolicy | None = None
        self._worker: _Worker[Forecast] | None = None

    def ask(self, snapshot: Snapshot, limit: float | None) -> Forecast | None:
        if self._policy is None:
            self._policy = load_policy(self._name, max_wait=self._max_wait)
        if limit is None:
            return self._policy.forecast(snapshot)
        if self._worker is None:
            self._worker = _Worker(self._policy.forecast)
        return self._worker.ask(snapshot, limit)


class _Worker(Generic[T]):
    """A thread that answers, one question after another. It ends when nobody holds the worker any longer."""

    def __init__(self, decide: Callable[[Snapshot], T]) -> None:
        self._questions: SimpleQueue[tuple[int, Snapshot] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, T | BaseException]] = SimpleQueue()
        self._asked = self._answered = 0
        threading.Thread(target=_work, args=(decide, self._questions, self._answers), daemon=True, name="policy").start()
        weakref.finalize(self, self._questions.put, None)

    def ask(self, snapshot: Snapshot, limit: float) -> T | None:
        deadline = time.monotonic() + limit
        while self._answered < self._asked:  # a late one
            if self._receive(deadline) is None:
                return None
        self._asked += 1
        self._questions.put((self._asked, snapshot))
        found = self._receive(deadline)
        if isinstance(found, BaseException):
            raise found
        return found

    def _receive(self, deadline: float) -> T | BaseException | None:
        try:
            self._answered, found = self._answers.get(timeout=max(deadline - time.monotonic(), 0.0))
        except Empty:
            return None
        return found


def _work(
    decide: Callable[[Snapshot], T],
    questions: SimpleQueue[tuple[int, Snapshot] | None],
    answers: SimpleQueue[tuple[int, T | BaseException]],
) -> None:
    while (question := questions.get()) is not None:
        number, snapshot = question
        try:
            answers.put((number, decide(snapshot)))
        except BaseException as error:  # the thread that asked must know
            answers.put((number, error))
