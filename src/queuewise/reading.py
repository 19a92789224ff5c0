"""The workload and the cluster that a command or a training run works on, as the user names them.

`Reading` holds the options of reading a log. Commands take it as flags and training keeps it with its settings, so this module imports
nothing heavy at its head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from queuewise.cluster.spec import Cluster
    from queuewise.workload import Loaded, ReadOptions

Notify = Callable[[str], None]


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Reading:
    """How a log is read."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (pydantic looks for it where settings hold a Reading)

    format: Annotated[str | None, tyro.conf.arg(metavar="FORMAT")] = None
    """The format of the log, where it should not be detected."""
    tables: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Further files of the same log: machine lists, job tables, more parts."""
    map: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=FIELD")] = ()
    """For generic CSV and Parquet: which column holds which field, e.g. started=start walltime=runtime."""
    memory: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """SWF: model the memory that jobs asked for."""
    partitions: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Tie jobs to the partition or queue that the log names; the cluster must have it."""
    elastic: Annotated[str | None, tyro.conf.arg(metavar="SHARE,LEAST-MOST,CURVE")] = None
    """Let a share of the jobs be elastic, e.g. 0.3,0.5-2,amdahl:0.05: 30 % may start with half to twice their tasks
    (curves: linear, amdahl:SERIAL, power:EXPONENT, table:TASKS=SPEED,…)."""

    def load(self, workload: str, jobs: int | None, seed: int) -> Loaded:
        """Read the log, or draw from the model of that name."""
        from queuewise.workload import load_workload
        from queuewise.workload.transform import make_elastic, parse_elastic

        elastic = parse_elastic(self.elastic) if self.elastic is not None else None  # a mistake is told before a long log is read
        loaded = load_workload(workload, format=self.format, jobs=jobs, seed=seed, tables=self.tables, options=self._options())
        return replace(loaded, workload=make_elastic(loaded.workload, *elastic, seed)) if elastic is not None else loaded

    def load_with_cluster(self, workload: str, cluster: str | None, jobs: int | None, seed: int, notify: Notify) -> tuple[Loaded, Cluster]:
        """The jobs, and the named cluster or that of the log; `notify` hears what the reader skipped and filled in."""
        from queuewise.cluster.cluster_loader import from_facts, load_cluster
        from queuewise.errors import InputError

        named = load_cluster(cluster) if cluster is not None else None  # a mistyped name is told before a long log is read
        loaded = self.load(workload, jobs, seed)
        for remark in loaded.tally.remarks():
            notify(remark)
        if named is not None:
            return loaded, named
        if loaded.cluster is None:
            raise InputError(f"{workload} does not tell its cluster", hint="add --cluster, e.g. --cluster flat:256; see queuewise clusters")
        return loaded, from_facts(loaded.cluster)

    def _options(self) -> ReadOptions:
        from queuewise.workload import ReadOptions

        return ReadOptions(columns=_mapping(self.map), memory=self.memory, partitions=self.partitions)


def _mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    from queuewise.errors import InputError

    mapping = {}
    for pair in pairs:
        column, equals, field = pair.rpartition("=")
        if not (column and equals and field):
            raise InputError(f"--map {pair!r} is not COLUMN=FIELD", hint="for example --map walltime=runtime")
        mapping[column] = field
    return mapping
