"""`queuewise clusters`: list the presets, and describe the cluster of a log or of Slurm in a file."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.cluster.described import DescribedCluster


@dataclass(frozen=True)
class ListClusters:
    """List the clusters included with Queuewise, and the names that describe a cluster directly. This is the default."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list of objects with name, nodes, gpus, cores, kinds, partitions and notes."""

    def run(self) -> None:
        from queuewise.cli.console import note, print_table
        from queuewise.cluster.cluster_loader import SHAPES, load_cluster, preset_names
        from queuewise.report.readable import figure

        rows = [_describe(load_cluster(name)) for name in preset_names()]
        if self.json:
            print(json_text.dumps(rows, indent=2, ensure_ascii=False))
            return
        print_table(
            ["cluster", "GPU kinds", "nodes", "GPUs", "cores", "partitions"],
            (
                [row["name"], ", ".join(row["kinds"]), *(figure(row[key]) for key in ("nodes", "gpus", "cores", "partitions"))]
                for row in rows
            ),
            left=2,
        )
        print_table(["or", "meaning"], [*SHAPES.items(), ("FILE.toml", "your own cluster file, see docs/clusters.md")], left=2)
        note("cores –: unlimited, never the bottleneck")


@dataclass(frozen=True)
class FromLog:
    """Write a cluster file with what the jobs of a log had: its node lists and partitions, otherwise the most in use at once.
    Comments in the file say what was guessed."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A log that records when its jobs started (the format is detected)."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.toml")]
    """File to write."""
    reading: Reading = field(default_factory=Reading)

    def run(self) -> None:
        from queuewise.cli.inputs import report_reading
        from queuewise.cluster.from_log import describe_log

        target = _toml(self.out)
        loaded = replace(self.reading, partitions=True).load(self.log, None, 0, recorded=True)
        report_reading(loaded)
        _write(describe_log(loaded, self.log), target)


@dataclass(frozen=True)
class FromSlurm:
    """Write a cluster file with the nodes in the output of Slurm. Comments in the file say what was guessed."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A file with the output of scontrol show node or of sinfo --json."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.toml")]
    """File to write."""

    def run(self) -> None:
        from queuewise.cluster.from_slurm import describe_slurm

        target = _toml(self.out)
        _write(describe_slurm(Path(self.file)), target)


Clusters = (
    Annotated[ListClusters, tyro.conf.subcommand("list")]
    | Annotated[FromLog, tyro.conf.subcommand("from-log")]
    | Annotated[FromSlurm, tyro.conf.subcommand("from-slurm")]
)


def _toml(out: str) -> Path:
    from queuewise.errors import InputError

    if not out.endswith(".toml"):
        raise InputError(f"--out {out} does not end in .toml", hint="cluster files must end in .toml")
    if not Path(out).parent.is_dir():
        raise InputError("no such folder", where=str(Path(out).parent), hint="create it first")
    return Path(out)


def _write(described: DescribedCluster, target: Path) -> None:
    from queuewise.cli.console import note
    from queuewise.runs import write_text

    write_text(target, described.toml())
    for remark in (*described.remarks, *(remark for group in described.groups for remark in group.remarks)):
        note(remark)
    note(f"{described.summary()} written to {target}")


def _describe(cluster: Any) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "nodes": cluster.num_nodes,
        "gpus": cluster.num_gpus,
        "cores": None if cluster.num_cores == float("inf") else cluster.num_cores,
        "kinds": [kind.name for kind in cluster.kinds],
        "partitions": len(cluster.partitions),
        "notes": cluster.notes,
    }
