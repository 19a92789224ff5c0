"""A policy with a deadline and a fallback: whatever happens to the policy, there is an answer that can be carried out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from queuewise.errors import InputError, QueuewiseError
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.answer_checks import problem_of
from queuewise.serve.forecast import Forecast
from queuewise.serve.live_policy import Decided, LivePolicy, load_policy

FALLBACK = "fcfs+easy"
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
    """Decides by `policy`; if that takes longer than the deadline, fails or cannot be carried out, by the fallback.

    Asked by one thread at a time. The policy works in a thread of its own: one that is late goes on there, and until it has ended the
    fallback answers.
    """

    def __init__(self, policy: str, *, fallback: str = FALLBACK, deadline_s: float | None = None, max_wait: str | None = None) -> None:
        self.deadline_s, self.max_wait = deadline_s, max_wait
        self._policy: LivePolicy = load_policy(policy, max_wait=max_wait)
        self._fallback = load_policy(fallback, max_wait=max_wait)
        self.distrusted = ""  # why the fallback answers although the policy could
        self._worker: _Worker[Decided] | None = None
        self._forecasts = {one: _Forecaster(one, max_wait) for one in dict.fromkeys((policy, fallback))}

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def fallback(self) -> str:
        return self._fallback.name

    @property
    def goes_by_predictions(self) -> bool:
        return self._policy.goes_by_predictions or self._fallback.goes_by_predictions

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

    def forecast(self, snapshot: Snapshot) -> Forecast | None:
        """When the waiting jobs would start, by the policy that answers. None: it could not be said in time."""
        return self._forecasts[self.fallback if self.distrusted else self.name].ask(snapshot, self.deadline_s)

    def _fall_back(self, snapshot: Snapshot, outcome: str, problem: str, began: float) -> Answer:
        try:
            decided = self._fallback.decide(snapshot)
        except QueuewiseError:
            raise
        except Exception as error:
            said = f"{self.fallback} cannot decide: {type(error).__name__}: {error}"
            raise InputError(said[:300], where="snapshot", hint="report it with the snapshot") from error
        if wrong := problem_of(decided, snapshot):
            raise InputError(f"{self.fallback} cannot decide: {wrong}", where="snapshot", hint="report it with the snapshot")
        return Answer(decided, outcome, self.fallback, time.perf_counter() - began, problem)

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
    """A thread that answers, one question after another."""

    def __init__(self, decide: Callable[[Snapshot], T]) -> None:
        self._decide = decide
        self._questions: SimpleQueue[tuple[int, Snapshot]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, T | BaseException]] = SimpleQueue()
        self._asked = self._answered = 0
        threading.Thread(target=self._run, daemon=True, name="policy").start()

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

    def _run(self) -> None:
        while True:
            number, snapshot = self._questions.get()
            try:
                self._answers.put((number, self._decide(snapshot)))
            except BaseException as error:  # the thread that asked must know
                self._answers.put((number, error))
