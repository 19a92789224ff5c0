"""Dependencies between jobs: edges between rows of a workload, and their text form in logs.

As in Slurm, `after` waits for a start, `afterany` for an end, and `afterok` for a successful end. Each may add a delay. See
docs/simulator.md, "Dependencies". The text form is `kind:id[+seconds][:id[+seconds]…]`, with several joined by commas. Ids without a kind,
joined by `|`, mean `afterany`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError

AFTER, AFTERANY, AFTEROK = range(3)
KINDS = {"after": AFTER, "afterany": AFTERANY, "afterok": AFTEROK}
SHOWN = 5  # jobs of a cycle shown in the error

Edge = tuple[int, int, int, float]  # job, on, kind, delay


@dataclass(frozen=True, eq=False)
class Dependencies:
    """D edges; rows are indices into the workload."""

    job: NDArray[np.int32]  # [D] the waiting job
    on: NDArray[np.int32]  # [D] the job it waits for
    kind: NDArray[np.int8]  # [D]
    delay: NDArray[np.float64]  # [D] seconds from that start or end to the release, >= 0

    @classmethod
    def of(cls, edges: Iterable[Edge]) -> Dependencies:
        job, on, kind, delay = list(zip(*edges, strict=True)) or [(), (), (), ()]
        return cls(np.array(job, np.int32), np.array(on, np.int32), np.array(kind, np.int8), np.array(delay, np.float64))

    def __len__(self) -> int:
        return len(self.job)

    def renumbered(self, number: NDArray[np.int64]) -> Dependencies:
        """The dependencies after row r became row number[r]. Edges to or from a removed row (-1) are removed."""
        stays = (number[self.job] >= 0) & (number[self.on] >= 0)
        job, on = number[self.job[stays]].astype(np.int32), number[self.on[stays]].astype(np.int32)
        return Dependencies(job, on, self.kind[stays], self.delay[stays])

    def check(self, job_id: NDArray[Any]) -> None:
        """Raise an error for edges to unknown rows, and for cycles."""
        num = len(job_id)
        ends = np.concatenate([self.job, self.on])
        if len(ends) and (ends.min() < 0 or ends.max() >= num):
            raise InputError(f"a dependency refers to row {ends.max() if ends.max() >= num else ends.min()}, but there are {num} jobs")
        if not (np.isfinite(self.delay) & (self.delay >= 0)).all() or not np.isin(self.kind, list(KINDS.values())).all():
            raise InputError("a dependency has an unknown kind, or a delay that is negative or not finite")
        if (self.on >= self.job).any():  # edges that all point back in time cannot form a cycle
            _check_cycles(self, job_id)


NO_DEPENDENCIES = Dependencies.of(())


def parse(text: str) -> list[tuple[int, str, float]]:
    """(kind, id, delay) of each dependency. Raises a ValueError for invalid text."""
    found = []
    for part in text.replace(" ", "").split(","):
        kind, colon, ids = part.partition(":")
        if not colon:
            kind, ids = "afterany", part.replace("|", ":")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not one of {', '.join(KINDS)}")
        for name in ids.split(":"):
            job, plus, delay = name.partition("+")
            found.append((KINDS[kind], job, float(delay) if plus else 0.0))
    if any(not job or not 0 <= delay < float("inf") for _, job, delay in found):
        raise ValueError(f"{text!r} has no job, or a negative delay")
    return found


def resolve(texts: Sequence[str | None], ids: Sequence[str]) -> tuple[Dependencies, int, int]:
    """The dependencies in texts [J], the number of references to unknown jobs, and the number of invalid texts. Both are omitted.

    An id refers to every row with this id. The id of a job array (`12`) refers to all its tasks (`12_1`, `12_2`, …).
    """
    rows: dict[str, list[int]] = {}
    if any(text is not None for text in texts):
        for row, name in enumerate(ids):
            rows.setdefault(name, []).append(row)
            if "_" in name:
                rows.setdefault(name.rpartition("_")[0], []).append(row)
    edges: dict[tuple[int, int, int], float] = {}
    unknown = unreadable = 0
    for row, text in enumerate(texts):
        try:
            named = parse(text) if text else []
        except ValueError:
            unreadable += 1
            continue
        unknown += sum(name not in rows for _, name, _ in named)
        for kind, name, delay in named:
            for on in rows.get(name, ()):
                edges[row, on, kind] = max(delay, edges.get((row, on, kind), 0.0))
    return Dependencies.of((*edge, delay) for edge, delay in edges.items()), unknown, unreadable


def to_texts(dependencies: Dependencies, job_id: NDArray[Any]) -> list[str | None]:
    """[J] the text form, which `resolve` reads."""
    names = {number: kind for kind, number in KINDS.items()}
    texts: list[str | None] = [None] * len(job_id)
    columns = (dependencies.job, dependencies.on, dependencies.kind, dependencies.delay)
    for job, on, kind, delay in zip(*(column.tolist() for column in columns), strict=True):
        text = f"{names[kind]}:{job_id[on]}" + (f"+{delay!r}" if delay else "")
        texts[job] = f"{texts[job]},{text}" if texts[job] else text
    return texts


def _check_cycles(dependencies: Dependencies, job_id: NDArray[Any]) -> None:
    """Repeatedly remove jobs that wait for no other job. Any job left is in a cycle or waits for one."""
    waits: dict[int, set[int]] = {}
    followers: dict[int, list[int]] = {}
    for job, on in zip(dependencies.job.tolist(), dependencies.on.tolist(), strict=True):
        waits.setdefault(job, set()).add(on)
        followers.setdefault(on, []).append(job)
    free = [on for on in followers if on not in waits]
    while free:
        done = free.pop()
        for job in followers.get(done, ()):
            if done in waits.get(job, ()):
                waits[job].discard(done)
                if not waits[job]:
                    del waits[job]
                    free.append(job)
    if waits:
        raise _cycle(waits, lambda row: str(job_id[row]))


def _cycle(waits: dict[int, set[int]], name: Callable[[int], str]) -> InputError:
    line = [min(waits)]
    while (on := min(on for on in waits[line[-1]] if on in waits)) not in line:
        line.append(on)
    cycle = [*line[line.index(on) :], on]
    shown = " waits for ".join(name(row) for row in cycle[:SHOWN]) + (" waits for …" if len(cycle) > SHOWN else "")
    return InputError(f"jobs wait for each other in a cycle: {shown}", hint="remove one of these dependencies, or replay without them")
