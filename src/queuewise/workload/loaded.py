"""The result of reading a log: the jobs, the cluster as described in the log, and a tally of skipped rows and filled-in fields.

Nothing is dropped or filled in silently. Every row that did not become a job is counted with a reason, and every field that was filled in
or repaired is counted by name, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import unknown_name
from queuewise.workload.jobs import Workload

Processors = Literal["requested", "allocated"]


@dataclass(frozen=True)
class NodeFacts:
    """`count` equal nodes as described in a log; inf if unknown."""

    count: int
    gpus: int = 0
    kind: str = ""  # GPU kind, set when gpus > 0
    cpus: float = float("inf")  # cores
    mem_gib: float = float("inf")
    partition: str = "default"
    name: str = ""


@dataclass(frozen=True)
class ClusterFacts:
    """The cluster on which a log was recorded, as far as known. `cluster.cluster_loader.from_facts` converts it to a Cluster."""

    name: str
    nodes: tuple[NodeFacts, ...]
    notes: str = ""


@dataclass
class Tally:
    """Counts of rows and fields for one log. For logs with one row per job, rows_read = kept + all skipped."""

    rows_read: int = 0
    kept: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # reason -> rows
    first_line: dict[str, int] = field(default_factory=dict)  # reason -> line of the first such row, if known
    filled: dict[str, int] = field(default_factory=dict)  # field -> jobs
    notes: list[str] = field(default_factory=list)

    def skip(self, reason: str, rows: int, line: int | None = None) -> None:
        if rows:
            self.skipped[reason] = self.skipped.get(reason, 0) + rows
            if line is not None:
                self.first_line.setdefault(reason, line)

    def fill(self, field_name: str, jobs: int, how: str) -> None:
        """Count `jobs` values of a field as filled in or repaired. `how` is noted once."""
        if jobs:
            self.filled[field_name] = self.filled.get(field_name, 0) + jobs
            self.note(f"{field_name}: {how}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def note_count(self, text: str, count: int) -> None:
        """Add a note with a count, which is added up over calls."""
        if count:
            old = next((note for note in self.notes if note.endswith(f" {text}")), None)
            if old is not None:
                self.notes.remove(old)
                count += int(old.split(" ", 1)[0])
            self.notes.append(f"{count} {text}")

    def remarks(self) -> Iterator[str]:
        """What the user should know, one line each."""
        if self.skipped:
            yield f"{sum(self.skipped.values()):,} rows were skipped: {self.describe_skipped()}"
        for field_name, jobs in self.filled.items():
            yield f"{field_name} was filled in for {jobs:,} jobs"
        yield from self.notes

    def describe_skipped(self) -> str:
        return ", ".join(
            f"{count} x {reason}" + (f" (first at line {self.first_line[reason]})" if reason in self.first_line else "")
            for reason, count in sorted(self.skipped.items(), key=lambda item: (-item[1], item[0]))
        )


@dataclass(frozen=True, eq=False)
class Recorded:
    """What the log says about the past of its jobs and a replay does not need. The rows are those of the workload."""

    node_list: NDArray[np.int32]  # [J] index into node_lists or UNKNOWN
    partition: NDArray[np.int32]  # [J] index into partitions or UNKNOWN
    gpu_kind: NDArray[np.int32]  # [J] what the job was given, index into gpu_kinds or UNKNOWN
    eligible: NDArray[np.float64]  # [J] when the job could have started first, seconds on the log's clock, NaN unknown
    node_lists: tuple[str, ...] = ()  # as written in the log, e.g. n[1-4,7]
    partitions: tuple[str, ...] = ()
    gpu_kinds: tuple[str, ...] = ()  # as written in the log

    def take(self, rows: slice | NDArray[np.bool_]) -> Recorded:
        columns = {name: getattr(self, name)[rows] for name in ("node_list", "partition", "gpu_kind", "eligible")}
        return replace(self, **columns)


@dataclass(frozen=True)
class Loaded:
    workload: Workload
    cluster: ClusterFacts | None  # as described in the log or its tables
    tally: Tally
    format: str
    recorded: Recorded | None = None  # only if the reader was asked for it

    def __repr__(self) -> str:
        skipped = sum(self.tally.skipped.values())
        return f"Loaded({self.format}: {self.workload!r}, {skipped:,} rows skipped)"

    def take(self, rows: slice | NDArray[np.bool_]) -> Loaded:
        """The jobs at `rows`, a slice or a mask."""
        recorded = self.recorded.take(rows) if self.recorded is not None else None
        return replace(self, workload=self.workload.take(rows), recorded=recorded)


@dataclass(frozen=True)
class ReadOptions:
    """Options for a reader."""

    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # generic formats: column in the file -> field
    memory: bool = False  # SWF: include the requested memory
    processors: Processors | None = None  # SWF: which field gives the size of a job; None: allocated
    clean: bool = False  # SWF: drop unusable jobs and cut runtimes at the request, as in the literature
    machine_procs: float | None = None  # SWF, clean: processors of the machine, above which jobs are dropped; None: as in the header
    partitions: bool = False  # restrict jobs to the partition or queue in the log
    recorded: bool = False  # also return `Recorded`

    def __post_init__(self) -> None:
        if self.processors not in (None, *get_args(Processors)):
            raise unknown_name("kind of processors", str(self.processors), get_args(Processors))


@dataclass(frozen=True)
class ReadRequest:
    """What to read: the file of jobs, additional tables of the same log, and the options."""

    path: Path
    tables: Sequence[Path] = ()
    options: ReadOptions = field(default_factory=ReadOptions)
