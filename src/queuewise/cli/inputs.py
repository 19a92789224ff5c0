"""The workload and the cluster that a command works on, as the user names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuewise.cluster.spec import Cluster
    from queuewise.workload import Loaded


def load_inputs(
    workload: str, cluster: str | None, *, format: str | None, jobs: int | None, seed: int, partitions: bool = False
) -> tuple[Loaded, Cluster]:
    """Read the log (or draw from the model) and find its cluster; what the reader skipped and filled in is told on stderr."""
    from queuewise.cluster.load import from_facts, load_cluster
    from queuewise.errors import InputError
    from queuewise.workload import ReadOptions, load_workload

    loaded = load_workload(workload, format=format, jobs=jobs, seed=seed, options=ReadOptions(partitions=partitions))
    tell_reading(loaded)
    if cluster is not None:
        return loaded, load_cluster(cluster)
    if loaded.cluster is None:
        raise InputError(f"{workload} does not tell its cluster", hint="add --cluster, e.g. --cluster flat:256; see queuewise clusters")
    return loaded, from_facts(loaded.cluster)


def tell_reading(loaded: Loaded) -> None:
    """What the reader skipped and filled in."""
    from queuewise.cli.console import note

    if loaded.tally.skipped:
        note(f"{sum(loaded.tally.skipped.values()):,} rows were skipped: {loaded.tally.describe_skipped()}")
    for field, jobs in loaded.tally.filled.items():
        note(f"{field} was filled in for {jobs:,} jobs")
    for remark in loaded.tally.notes:
        note(remark)
