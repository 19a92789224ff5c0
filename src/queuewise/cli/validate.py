"""`queuewise validate`: is a replay like what happened?"""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import tyro

from queuewise.cli.inputs import read_conditions, report_reading
from queuewise.plain_text import printable
from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.evaluation.log_validation import Validation, Waits

SHOWN_PARTS = 12  # rows of a table by account; validation.json has all


@dataclass(frozen=True)
class Validate:
    """Replay a log and compare the waits with those that it records: figures, a verdict (close, usable or off) and likely causes."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A log that records when its jobs started (the format is detected)."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    policy: Annotated[str | None, tyro.conf.arg(metavar="POLICY")] = None
    """What to replay. Default: the policy that is most like that of the log's scheduler (docs/validation.md)."""
    reading: Reading = field(default_factory=Reading)
    estimates: Annotated[str | None, tyro.conf.arg(metavar="KIND")] = None
    """What the policy knows about runtimes: oracle, requested, noisy:SIGMA or predicted.
    Default: requested, or predicted for a log without requests."""
    conditions: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with outages, reservations, quotas, … (see docs/conditions.md)."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of the log."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for noisy estimates and random policies."""
    plot: Annotated[str | None, tyro.conf.arg(metavar="OUT.png")] = None
    """Plot waits and utilisation to this file."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Write a run folder with validation.json and the replay. queuewise report DIR adds report.html."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse models whose file has another SHA-256 than these, as sha256sum prints it."""
    allow_rejected: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with exit code 0 even if more than half of the jobs can never run on the cluster (otherwise 3)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: recorded and replayed waits, rank_correlation, utilisation_error, verdict, why."""

    def run(self) -> int:
        self._check()
        from queuewise.cli.console import announce_compilation, note
        from queuewise.cluster.cluster_loader import load_cluster
        from queuewise.evaluation import remarks
        from queuewise.evaluation.log_validation import validate
        from queuewise.evaluation.seen_days import remarks_on_log
        from queuewise.sim.core.schedule import REJECTED

        cluster = load_cluster(self.cluster) if self.cluster is not None else None
        loaded = replace(self.reading, partitions=True).load(self.log, self.jobs, self.seed, cluster, recorded=True)
        report_reading(loaded)
        announce_compilation()
        found = validate(
            loaded,
            cluster,
            self.policy,
            estimates=self.estimates,
            conditions=read_conditions(self.conditions, loaded.workload, self.reading.load_factor),
            seed=self.seed,
            keep_partitions=self.reading.partitions,
            notify=note,
        )
        for jobs, what in (
            (found.at_begin, "ran or waited when the log begins; they are replayed and not compared"),
            (found.replay.left_out, "ran for 0 s and are left out"),
        ):
            if jobs:
                note(f"{jobs:,} jobs {what}")
        replayed = found.replay.schedule
        lines = remarks_on_log([replayed.policy], loaded.workload, self.log, self.reading.load_factor)
        lines = (*lines, *remarks.equal_estimates(replayed.estimate, replayed.estimates))
        for line in (*lines, *remarks.rejections(replayed.workload, replayed.cluster, replayed.status == REJECTED)):
            note(line)
        if self.plot:
            from queuewise.report.validation_charts import draw_validation

            draw_validation(found.details(), self.plot)
            note(f"written to {self.plot}")
        if self.out:
            self._write(found)
        if self.json:
            print(json_text.dumps(found.as_json(), indent=2, allow_nan=False))
        else:
            _print(found)
        return remarks.exit_code(found.replay.rejected, len(replayed.workload), allowed=self.allow_rejected)

    def _check(self) -> None:
        from queuewise.cli.console import check_policies
        from queuewise.errors import InputError
        from queuewise.report.figures import figure_target
        from queuewise.runs import start_run

        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        check_policies([self.policy] if self.policy is not None else [], model_sha256=self.model_sha256)
        if self.plot:  # report a problem with a file or folder before the replay
            figure_target(self.plot)
        if self.out:
            start_run(self.out)

    def _write(self, found: Validation) -> None:
        from queuewise.cli.console import note
        from queuewise.config import to_toml
        from queuewise.evaluation.metrics import summarise
        from queuewise.evaluation.replay_files import VALIDATION_FILE, to_json, write_cluster, write_replay
        from queuewise.runs import LAST_FILE, file_name, write_text, writing_run

        options, schedule = asdict(self), found.replay.schedule
        with writing_run(self.out or "") as folder:
            write_text(folder / "config.toml", to_toml({"command": "validate", **options, **options.pop("reading")}))
            write_cluster(folder, schedule.cluster)
            write_replay(folder / file_name(schedule.policy), schedule)
            write_text(folder / VALIDATION_FILE, to_json(found.details()))
            write_text(folder / LAST_FILE, to_json([summarise(schedule)]))
        note(f"written to {folder}")


def _print(found: Validation) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import duration, figure

    def row(name: str, waits: Waits) -> list[str]:
        return [name, *(duration(value) for value in (waits.mean, waits.p50, waits.p90, waits.p99))]

    title = f"{found.log}: {found.jobs:,} jobs on {found.cluster} under {found.policy}, estimates {found.estimates}"
    print(printable(title))
    print_table(["", "mean wait", "p50", "p90", "p99"], [row("recorded", found.recorded), row("replayed", found.replayed)])
    for key, parts in found.by.items():
        if key == "time" or len(parts) < 2:
            continue
        shown = sorted(parts, key=lambda part: -part.jobs)[:SHOWN_PARTS] if key == "account" else parts
        rows = [
            [
                part.key,
                figure(part.jobs),
                duration(part.recorded.mean),
                duration(part.replayed.mean),
                duration(part.recorded.p90),
                duration(part.replayed.p90),
            ]
            for part in shown
        ]
        most = f"the {len(shown)} of {len(parts):,} accounts with the most jobs; --out writes all" if len(shown) < len(parts) else ""
        print_table([key, "jobs", "recorded mean", "replayed mean", "recorded p90", "replayed p90"], rows, title=most)
    correlation = figure(found.rank_correlation, 2)
    print(f"rank correlation {correlation}, mean difference of the {found.resource} in use {found.utilisation_error:.1%}")
    print(f"verdict: {found.verdict}")
    for sentence in found.why:
        print(f"- {printable(sentence)}")
