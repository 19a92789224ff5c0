"""`queuewise workload`: inspect, convert and download logs; generate workloads from models and fit models to logs."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from queuewise.cli.inputs import report_reading
from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.cluster import Cluster
    from queuewise.workload import Loaded
    from queuewise.workload.fitting import FitReport

MUCH_WORK = 0.2  # share of one job in the work of a log that is worth a word


@dataclass(frozen=True)
class WorkloadArguments:
    """The log or model to use, and how to read it."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|MODEL")]
    """A log (the format is detected) or the name of a workload model."""
    reading: Reading = field(default_factory=Reading)
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of a log, or generate N jobs from a model."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for a model."""

    def load(self, cluster: Cluster | None = None, *, recorded: bool = False) -> Loaded:
        return self.reading.load(self.file, self.jobs, self.seed, cluster, recorded=recorded)


@dataclass(frozen=True)
class Info:
    """Print counts, span, load, quantiles of size and runtime, and arrivals by hour and weekday."""

    source: tyro.conf.OmitArgPrefixes[WorkloadArguments]
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """Compute the offered load on this cluster instead of that of the log (see queuewise clusters from-log)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""
    plot: Annotated[str | None, tyro.conf.arg(metavar="OUT.png")] = None
    """Plot arrivals, sizes and runtimes to this file."""

    def run(self) -> None:
        from queuewise.cluster.cluster_loader import load_cluster
        from queuewise.workload.info import describe

        cluster = load_cluster(self.cluster) if self.cluster is not None else None
        loaded = self.source.load(cluster, recorded=cluster is None)
        cluster = cluster or self._cluster_of(loaded)
        figures = describe(loaded, (float(cluster.num_gpus), cluster.num_cores) if cluster is not None else None)
        if self.plot:
            from queuewise.cli.console import note
            from queuewise.report.workload_figure import draw_workload

            draw_workload(loaded.workload, self.plot)
            note(f"written to {self.plot}")
        if self.json:
            print(json_text.dumps(figures, indent=2, allow_nan=False))
        else:
            _print_info(loaded, figures)

    def _cluster_of(self, loaded: Loaded) -> Cluster | None:
        from queuewise.cli.console import note
        from queuewise.cluster.from_log import cluster_of_log
        from queuewise.errors import InputError

        try:
            cluster, remark = cluster_of_log(loaded, self.source.file)
        except InputError:  # without a cluster, the load is unknown
            return None
        if remark:
            note(remark)
        return cluster


@dataclass(frozen=True)
class Convert:
    """Convert a log to SWF, Parquet or generic CSV, depending on the name of the output file."""

    source: tyro.conf.OmitArgPrefixes[WorkloadArguments]
    out: Annotated[str, tyro.conf.arg(metavar="OUT")]
    """File to write: .swf, .parquet or .csv, optionally followed by .gz for compression."""
    to: Annotated[str | None, tyro.conf.arg(metavar="FORMAT")] = None
    """swf, parquet or csv. Default: from the name of the output file."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.workload.writers import write_workload

        loaded = self.source.load()
        report_reading(loaded)
        for loss in write_workload(loaded.workload, self.out, format=self.to, cluster=loaded.cluster):
            note(loss)
        note(f"{len(loaded.workload):,} jobs written to {self.out}")


@dataclass(frozen=True)
class Download:
    """Download a public trace, or list the available ones."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """Trace to download. Without it, all traces are listed with licence and citation."""
    dir: Annotated[str, tyro.conf.arg(metavar="DIR")] = "traces"
    """Folder for the downloaded files."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""

    def run(self) -> None:
        from queuewise.workload.catalog import find_trace

        if self.name is None:
            _list_traces(self.json)
        else:
            _download(find_trace(self.name), self.dir, self.json)


@dataclass(frozen=True)
class Generate:
    """Generate a workload from a model and write it as SWF, Parquet or generic CSV."""

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|FILE.toml")] = None
    """A model, or a file written by queuewise workload fit. Without it, all models are listed with their parameters."""
    out: Annotated[str | None, tyro.conf.arg(metavar="OUT")] = None
    """File to write: .swf, .parquet or .csv, optionally followed by .gz for compression."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of jobs. Default: depends on the model."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Random seed; the same seed gives the same jobs."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PARAMETER=VALUE")] = ()
    """Parameters of the model, e.g. load=0.9 sizes=1,2,4 size_weights=6,3,1."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.workload.models import generate
        from queuewise.workload.writers import write_workload

        if self.model is None:
            return _list_models()
        if self.out is None:
            raise InputError("no output file given", hint="add --out jobs.parquet (or .swf, .csv)")
        workload = generate(self.model, self.jobs, self.seed, **_parameters(self.set))
        for loss in write_workload(workload, self.out):
            note(loss)
        return note(f"{len(workload):,} jobs written to {self.out}")


@dataclass(frozen=True)
class Fit:
    """Fit a model to a log, so that it can be shared without the log, and report how well the model matches it."""

    source: tyro.conf.OmitArgPrefixes[WorkloadArguments]
    out: Annotated[str, tyro.conf.arg(metavar="MODEL.toml")]
    """File to write. It can be used wherever a model name is accepted."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the report as JSON."""

    def run(self) -> None:
        from dataclasses import asdict
        from pathlib import Path

        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.workload.fitting import WORK_TOLERANCE, compare_fit, fit
        from queuewise.workload.models import generate

        if not self.out.endswith(".toml"):
            raise InputError(f"--out {self.out} does not end in .toml", hint="model files must end in .toml")
        loaded = self.source.load()
        report_reading(loaded)
        model = fit(loaded.workload, Path(self.out).stem)
        model.save(Path(self.out))
        report = compare_fit(loaded.workload, generate(self.out, len(loaded.workload), self.source.seed))
        note(f"written to {self.out}")
        if model.pace != 1.0:
            note(
                f"the time between submissions is {model.pace:.2f} times the log's, so that jobs bring as much work per second as the log's"
            )
        if abs(report.work_ratio - 1.0) > WORK_TOLERANCE:
            work = loaded.workload.size * loaded.workload.runtime
            reason = f"; one job of the log has {work.max() / work.sum():.0%} of its work" if work.max() > MUCH_WORK * work.sum() else ""
            note(
                f"the model offers {report.work_ratio:.2f} times the work per second of the log{reason}: give "
                f"--load-factor {1 / report.work_ratio:.2f} with its jobs to replay the log's load"
            )
        if self.json:
            print(json_text.dumps(asdict(report) | {"worst_error": report.worst_error}, indent=2, allow_nan=False))
        else:
            _print_fit(report)


WorkloadCommand = (
    Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Download, tyro.conf.subcommand("download")]
)


def _parameters(pairs: tuple[str, ...]) -> dict[str, str]:
    from queuewise.errors import InputError

    for pair in pairs:
        if "=" not in pair or pair.startswith("="):
            raise InputError(f"--set {pair!r} is not PARAMETER=VALUE", hint="for example --set load=0.9")
    return dict(pair.split("=", 1) for pair in pairs)


def _list_models() -> None:
    from queuewise.cli.console import print_table
    from queuewise.workload.models import model_names, model_parameters

    rows = [
        (name if number == 0 else "", f"{key}={_plain(value)}")
        for name in model_names()
        for number, (key, value) in enumerate(model_parameters(name).items())
    ]
    print_table(["model", "parameters and their defaults"], rows, left=2)


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _print_fit(report: FitReport) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import figure

    rows = [
        (row.quantity, f"p{row.probability * 100:g}", figure(row.log, 1), figure(row.model, 1), f"{row.error:.1%}")
        for row in report.quantiles
    ]
    lags = [
        ("hourly arrivals", f"lag {lag} h", figure(log, 2), figure(model, 2), "") for lag, (log, model) in report.autocorrelation.items()
    ]
    distances = [(quantity, "K–S distance", "", figure(value, 3), "") for quantity, value in report.kolmogorov_smirnov.items()]
    work = ("work per second", "model ÷ log", "", figure(report.work_ratio, 2), "")
    print_table(["", "", "log", "model", "error"], [*rows, *lags, *distances, work], left=2)


def _print_info(loaded: Loaded, figures: dict[str, Any]) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import duration, figure

    report_reading(loaded)
    gpus, cores, runtime, wait = (figures[key] for key in ("gpus", "cores", "runtime_s", "recorded_wait_s"))
    rows = [
        ("format", figures["format"]),
        ("jobs", figure(figures["jobs"])),
        ("users", figure(figures["users"])),
        ("span", duration(figures["span_s"])),
        ("offered load", figure(figures["offered_load"], 3)),
        ("GPUs p50 / p90 / max", " / ".join(figure(gpus[key], 1) for key in ("p50", "p90", "max"))),
        ("cores p50 / p90 / max", " / ".join(figure(cores[key], 1) for key in ("p50", "p90", "max"))),
        ("runtime p50 / p90 / p99", " / ".join(duration(runtime[key]) for key in ("p50", "p90", "p99"))),
        ("recorded wait p50 / p90 / p99", " / ".join(duration(wait[key]) for key in ("p50", "p90", "p99"))),
        ("arrivals by hour of day", " ".join(map(str, figures["arrivals_by_hour"]))),
        ("arrivals by weekday, Mon–Sun", " ".join(map(str, figures["arrivals_by_weekday"]))),
    ]
    print_table(["", loaded.workload.name], rows, left=2)


def _list_traces(json: bool) -> None:
    from dataclasses import asdict

    from queuewise.cli.console import print_table
    from queuewise.workload.catalog import TRACES

    if json:
        print(json_text.dumps([asdict(trace) for trace in TRACES], indent=2))
        return
    rows = [(trace.name, trace.title, trace.format, trace.cluster, trace.licence, trace.citation) for trace in TRACES]
    print_table(["name", "trace", "format", "cluster", "licence", "cite"], rows, left=6, drop_first=[5, 2, 3])


def _advance(bars: Any, bar: Any, done: int, total: int | None) -> None:
    bars.update(bar, completed=done, total=total)


def _download(trace: Any, folder: str, json: bool) -> None:
    from functools import partial
    from pathlib import Path

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from queuewise.cli.console import note
    from queuewise.workload.download import fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    paths = []
    with Progress(*columns, console=Console(stderr=True)) as bars:
        for file in trace.files:
            bar = bars.add_task(file.name, total=file.size_bytes)
            paths.append(fetch(file, Path(folder), partial(_advance, bars, bar)))
    if trace.unverified and any(file.sha256 is None for file in trace.files):
        note(f"not verified by checksum: {trace.unverified}")
    note(f"licence: {trace.licence}; cite {trace.citation}")
    if trace.cluster:
        note(f"replay it with --cluster {trace.cluster}")
    if trace.then:
        note(trace.then)
    names = [str(path) for path in paths]
    print(json_text.dumps(names) if json else "\n".join(names))
