"""What the service counts, in the OpenMetrics format. No label names a user or a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from queuewise.serve.guarded_policy import OUTCOMES

BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
MOST_PARTITIONS = 64  # that have labels of their own: requests may name any number
OTHERS = "others"
CONTENT_TYPE = CONTENT_TYPE_LATEST


@dataclass(frozen=True)
class ShownQueue:
    """Waiting jobs by their partitions, with their waits so far."""

    partitions: Sequence[str | None]
    waits: Sequence[float]
    running: int


class ServiceMetrics:
    def __init__(self) -> None:
        self._shown: Callable[[], ShownQueue] | None = None
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry, "namespace": "queuewise"}
        self._decisions = Counter("decisions", "Decisions by outcome", ["outcome"], **own)
        self._latency = Histogram("decision_seconds", "Time from request to answer", buckets=BUCKETS, **own)
        self._starts = Counter("starts", "Jobs that were told to start", **own)
        self._waiting = Gauge("waiting_jobs", "Waiting jobs in the last snapshot", ["partition"], **own)
        self._running = Gauge("running_jobs", "Running jobs in the last snapshot", **own)
        self._waits = Gauge("longest_wait_seconds", "Longest wait so far in the last snapshot", ["partition"], **own)
        self._reloads = Counter("reloads", "Reloads of the policy", **own)
        for outcome in OUTCOMES:
            self._decisions.labels(outcome)

    def note_decision(self, outcome: str, elapsed_s: float, starts: int) -> None:
        self._decisions.labels(outcome).inc()
        self._latency.observe(elapsed_s)
        self._starts.inc(starts)

    def note_rejection(self) -> None:
        self._decisions.labels("rejected").inc()

    def note_reload(self) -> None:
        self._reloads.inc()

    def note_queue(self, make: Callable[[], ShownQueue]) -> None:
        """What the last request showed: it is made when somebody reads the metrics."""
        self._shown = make

    def text(self) -> bytes:
        if self._shown is not None:
            self._set_queue(self._shown())
        written: bytes = generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return written

    def _set_queue(self, shown: ShownQueue) -> None:
        numbers: dict[str, list[float]] = {}
        for partition, wait in zip(shown.partitions, shown.waits, strict=True):
            name = partition or "any"
            name = name if name in numbers or len(numbers) < MOST_PARTITIONS else OTHERS
            count, longest = numbers.get(name, [0.0, 0.0])
            numbers[name] = [count + 1, max(longest, wait)]
        self._running.set(shown.running)
        _set_all(self._waiting, {name: count for name, (count, _) in numbers.items()})
        _set_all(self._waits, {name: longest for name, (_, longest) in numbers.items()})


def _set_all(gauge: Gauge, values: Mapping[str, float]) -> None:
    gauge.clear()
    for name, value in values.items():
        gauge.labels(name).set(value)
