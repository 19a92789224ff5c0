"""Runtimes of jobs that have ended: what predictions for waiting jobs, and draws of their runtimes, are made from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from queuewise.policies.snapshot import JobRecord
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.predictor import predict

MOST_JOBS = 3000  # the latest that are remembered
LEARNED_FROM = 1000  # the latest, for a prediction
FEWEST_RATIOS = 20  # before that, nothing is known about the error of predictions
FIRST_GUESS = (0.05, 1.0)  # of the limit: where a runtime lies that nothing is known about


@dataclass(frozen=True)
class EndedRun:
    user: str
    name: str
    width: int  # tasks
    limit_s: float
    runtime_s: float
    ended: float  # Unix time


class RuntimeHistory:
    """Predicts by the latest runs of the same user, request, name and size, as `predicted:recent` does."""

    def __init__(self, runs: Sequence[EndedRun] = ()) -> None:
        self._runs: deque[EndedRun] = deque(sorted(runs, key=lambda run: run.ended), maxlen=MOST_JOBS)
        self._known: dict[tuple[str, str, int, float], float] = {}
        self._ratios: Floats | None = None

    @classmethod
    def of(cls, workload: Workload, names: Sequence[str] = ()) -> RuntimeHistory:
        """The jobs of a log, as if they had ended before now."""
        users = workload.users
        rows = range(max(len(workload) - MOST_JOBS, 0), len(workload))
        return cls(
            [
                EndedRun(
                    users[workload.user[j]] if workload.user[j] >= 0 else "",
                    str(int(workload.job_name[j])) if not names else names[j],
                    int(workload.num_tasks[j]),
                    float(workload.requested[j]) if np.isfinite(workload.requested[j]) else float(workload.runtime[j]),
                    float(workload.runtime[j]),
                    float(j - len(workload)),  # in this order, and before anything live
                )
                for j in rows
            ]
        )

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, run: EndedRun) -> None:
        """Learn from a job that has ended."""
        self._runs.append(run)
        self._known.clear()
        self._ratios = None

    def predict(self, user: str, name: str, width: int, limit_s: float) -> float:
        """Seconds, at most the limit; the limit itself while nothing is known."""
        return self.predict_many([(user, name, width, limit_s)])[0]

    def predict_many(self, jobs: Sequence[tuple[str, str, int, float]]) -> list[float]:
        """The same for several jobs at once: user, name, width and limit of each."""
        unknown = [key for key in dict.fromkeys(jobs) if key not in self._known]
        if unknown:
            asked = [EndedRun(*key, runtime_s=key[3], ended=np.inf) for key in unknown]
            values = _predictions([*list(self._runs)[-LEARNED_FROM:], *asked])[-len(asked) :] if self._runs else [np.nan] * len(asked)
            for key, value in zip(unknown, values, strict=True):
                self._known[key] = key[3] if np.isnan(value) else min(max(float(value), 1.0), key[3])
        return [self._known[key] for key in jobs]

    @property
    def ratios(self) -> Floats:
        """Runtimes ÷ what was predicted for them, sorted."""
        if self._ratios is None:
            runs = list(self._runs)
            predicted = _predictions(runs) if len(runs) > 1 else np.full(len(runs), np.nan)
            runtime = np.array([max(run.runtime_s, 1.0) for run in runs])
            known = ~np.isnan(predicted)
            self._ratios = np.sort(runtime[known] / np.maximum(predicted[known], 1.0))
        return self._ratios

    def draw(self, job: JobRecord, elapsed_s: float, generator: np.random.Generator) -> float:
        """A runtime for a job, longer than it has run so far and at most its limit."""
        limit = max(job.estimate if job.requested is None else job.requested, elapsed_s)
        predicted = limit if job.predicted is None else job.predicted
        if len(self.ratios) < FEWEST_RATIOS:
            low, high = (max(part * limit, elapsed_s) for part in FIRST_GUESS)
            return float(generator.uniform(low, high))
        longer = self.ratios[np.searchsorted(self.ratios, elapsed_s / max(predicted, 1.0), side="right") :]
        if not len(longer):
            return float(generator.uniform(elapsed_s, limit))
        return float(min(max(generator.choice(longer) * predicted, elapsed_s), limit))


def _predictions(runs: Sequence[EndedRun]) -> Floats:
    """What `predicted:recent` says for each of these runs, from those before it."""
    users, names = ({text: code for code, text in enumerate(sorted({getattr(run, of) for run in runs}))} for of in ("user", "name"))
    lasting = np.array([run.ended for run in runs]) < np.inf
    runtime = np.array([run.runtime_s for run in runs])
    workload = Workload(
        submit=np.arange(len(runs), dtype=np.float64) * 2,  # each is asked for after all before it have ended
        runtime=runtime,
        num_tasks=np.array([run.width for run in runs], np.int32),
        cpu_milli=np.full(len(runs), 1000, np.int32),
        requested=np.array([run.limit_s for run in runs]),
        user=np.array([users[run.user] for run in runs], np.int32),
        users=tuple(users),
        job_name=np.array([names[run.name] for run in runs], np.int32),
        recorded_wait=np.where(lasting, 1.0 - runtime, np.inf),  # ends one second after it was asked for, or teaches nothing
    )
    return predict(workload, "recent")
