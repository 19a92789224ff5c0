"""Machine lists of logs as descriptions of the cluster. Equal machines form one group, in order of first appearance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from queuewise.workload.loaded import ClusterFacts, NodeFacts, Tally
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import KIND_NAMES


def cluster_facts(
    name: str,
    path: Path,
    *,
    gpus: pl.Expr,
    kind: pl.Expr,
    cpus: pl.Expr | None = None,
    mem_gib: pl.Expr | None = None,
    columns: Sequence[str] | None = None,
    required: Sequence[str] = (),
    tally: Tally,
) -> ClusterFacts:
    """Read the list at `path`. Machines with invalid GPUs or cores are skipped and noted."""
    unlimited = pl.lit(float("inf"))
    frames = [
        batch.select(
            gpus.alias("gpus"),
            kind.replace(KIND_NAMES).fill_null("").alias("kind"),
            (unlimited if cpus is None else cpus).alias("cpus"),
            (unlimited if mem_gib is None else mem_gib).alias("mem_gib"),
        )
        for batch in batches(path, Tally(), columns=columns, required=required)
    ]
    listed = pl.concat(frames) if frames else pl.DataFrame(schema=["gpus", "kind", "cpus", "mem_gib"])
    holds = (pl.col("gpus") >= 0) & (pl.col("cpus") >= 0) & (pl.col("mem_gib") >= 0) & ((pl.col("gpus") > 0) | (pl.col("cpus") > 0))
    usable = listed.filter(holds & ((pl.col("gpus") == 0) | (pl.col("kind") != "")))
    if usable.height < listed.height:
        tally.note(f"{listed.height - usable.height} of {listed.height} machines in {path.name} are invalid and were skipped")
    groups = usable.group_by("gpus", "kind", "cpus", "mem_gib", maintain_order=True).len()
    nodes = (
        NodeFacts(count, int(gpus), kind if gpus else "", cpus, mem, name=kind if gpus else "cpu")
        for gpus, kind, cpus, mem, count in groups.rows()
    )
    return ClusterFacts(name, tuple(nodes), f"from {path.name}")
