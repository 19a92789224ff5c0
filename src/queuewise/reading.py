"""Loading the workload and the cluster that a command or a training run names.

`Reading` holds the options for reading a log. Commands take them as flags, and training stores them with its settings. Heavy imports are
inside the functions, because commands import this module to parse their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from queuewise.cluster.spec import Cluster
    from queuewise.workload import Loaded, ReadOptions, Workload

Notify = Callable[[str], None]


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Reading:
    """Options for reading a log."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (pydantic looks for it where settings hold a Reading)

    format: Annotated[str | None, tyro.conf.arg(metavar="FORMAT")] = None
    """Format of the log. Default: detected from its content."""
    tables: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Additional files of the same log: machine lists, job tables, more parts."""
    map: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=FIELD")] = ()
    """Generic CSV and Parquet: map columns to fields, e.g. started=start walltime=runtime."""
    memory: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """SWF: include the memory that jobs requested."""
    processors: Literal["requested", "allocated"] | None = None
    """SWF: the size of a job is what it requested (field 8, as in the literature) or what it was given (field 5, the default).
    Where one is missing, the other is used."""
    clean: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """SWF: drop jobs without runtime or requested time or with more processors than the machine, and cut runtimes at the request."""
    partitions: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Restrict jobs to the partition or queue that the log names. The cluster must have it."""
    kinds: Literal["bind", "ignore"] = "bind"
    """Restrict jobs to the GPU kinds that the log names (bind), or let them run on any kind (ignore)."""
    load_factor: Annotated[float | None, tyro.conf.arg(metavar="F")] = None
    """Submit the same jobs F times as fast, so that the load is F times as high. Daily cycles become shorter,
    and so do the outages, maintenance and reservations of --conditions, which befall the same jobs."""
    elastic: Annotated[str | None, tyro.conf.arg(metavar="SHARE,LEAST-MOST,CURVE")] = None
    """Make a share of the jobs elastic. For example, with 0.3,0.5-2,amdahl:0.05, 30 % of the jobs may start with half to twice their
    tasks. Curves: linear, amdahl:SERIAL, power:EXPONENT, table:TASKS=SPEED,…"""

    def load(
        self,
        workload: str,
        jobs: int | None,
        seed: int,
        cluster: Cluster | None = None,
        *,
        recorded: bool = False,
        args: Mapping[str, Any] | None = None,
    ) -> Loaded:
        """Read the log or generate jobs from the model of that name, with these parameters.

        --clean drops jobs that are larger than `cluster`. `recorded` also returns what the log says about the past of its jobs.
        """
        from queuewise.errors import InputError
        from queuewise.workload import load_workload
        from queuewise.workload.transform import make_elastic, parse_elastic, without_kinds

        elastic = parse_elastic(self.elastic) if self.elastic is not None else None  # report a mistake before reading a long log
        options = self._options(cluster, recorded)
        loaded = load_workload(workload, format=self.format, jobs=jobs, seed=seed, tables=self.tables, options=options, args=args)
        jobs_read = loaded.workload
        if self.kinds == "ignore":
            if loaded.format.startswith("model:"):
                raise InputError(f"{workload} is a model, whose jobs name no GPU kinds: --kinds ignore cannot be used", hint="omit it")
            jobs_read = without_kinds(jobs_read)
        jobs_read = self.faster(jobs_read)
        if elastic is not None:
            jobs_read = make_elastic(jobs_read, *elastic, seed)
        return replace(loaded, workload=jobs_read)

    def faster(self, workload: Workload) -> Workload:
        """The jobs at the load that --load-factor asks for."""
        from queuewise.errors import InputError
        from queuewise.workload.transform import stretch

        if self.load_factor is None:
            return workload
        if not 0 < self.load_factor < float("inf"):
            raise InputError(f"--load-factor {self.load_factor:g} is no factor", hint="use a number above 0; 2 doubles the load")
        return stretch(workload, 1 / self.load_factor)

    def load_with_cluster(
        self,
        workload: str,
        cluster: str | None,
        jobs: int | None,
        seed: int,
        notify: Notify,
        args: Mapping[str, Any] | None = None,
    ) -> tuple[Loaded, Cluster]:
        """The jobs, and the named cluster or the one in the log. `notify` is called with what the reader skipped and filled in."""
        from queuewise.cluster.cluster_loader import load_cluster
        from queuewise.cluster.from_log import cluster_of_log

        named = load_cluster(cluster) if cluster is not None else None  # report a mistyped name before reading a long log
        loaded = self.load(workload, jobs, seed, named, recorded=named is None, args=args)
        for remark in loaded.tally.remarks():
            notify(remark)
        if named is not None:
            return loaded, named
        found, remark = cluster_of_log(loaded, workload)
        if remark:
            notify(remark)
        return loaded, found

    def _options(self, cluster: Cluster | None, recorded: bool) -> ReadOptions:
        from queuewise.workload import ReadOptions

        return ReadOptions(
            columns=_mapping(self.map),
            memory=self.memory,
            processors=self.processors,
            clean=self.clean,
            machine_procs=None if cluster is None else cluster.num_cores,
            partitions=self.partitions,
            recorded=recorded,
        )


def parse_model_args(pairs: Sequence[str], workload: str) -> dict[str, str]:
    """The parameters in `--workload-args load=1.1 …` for a workload model, which checks their values."""
    from queuewise.errors import InputError
    from queuewise.workload.models import is_model

    for pair in pairs:
        if "=" not in pair or not is_model(workload):
            raise InputError(
                f"workload_args {pair!r} is not PARAMETER=VALUE of a workload model",
                hint="for example --workload bursty --workload-args bursts=3",
            )
    return dict(pair.split("=", 1) for pair in pairs)


def args_on_cluster(model: str, cluster: Cluster) -> dict[str, int]:
    """The parameters of a workload model that say how large the machine is, for this cluster: so that its load means what it says."""
    from queuewise.workload.models import model_parameters

    sizes = {"gpus": cluster.num_gpus, "cores": cluster.num_cores}
    known = model_parameters(model)
    return {key: int(value) for key, value in sizes.items() if key in known and 0 < value < float("inf")}


def _mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    from queuewise.errors import InputError

    mapping = {}
    for pair in pairs:
        column, equals, field = pair.rpartition("=")
        if not (column and equals and field):
            raise InputError(f"--map {pair!r} is not COLUMN=FIELD", hint="for example --map walltime=runtime")
        mapping[column] = field
    return mapping
