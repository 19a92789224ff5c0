"""`queuewise optimise`: where a waiting job of a snapshot would best go, and what other rules would do."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Optimise:
    """Place one waiting job of a snapshot by an exact solver, and show what other rules would do, with every term of the objective."""

    snapshot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SNAPSHOT.json")]
    """A snapshot, as Snapshot.save writes it (docs/snapshots.md)."""
    cluster: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
    """The cluster of the snapshot: a preset, flat:N, NxM:kind or a .toml file."""
    job: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """The waiting job to place. Default: the first that fits now."""
    objective: Annotated[str, tyro.conf.arg(metavar="TERMS[:K]")] = "nodes-fragments-full"
    """What is minimised, as after @milp: (docs/placement.md)."""
    milp_work: Annotated[int, tyro.conf.arg(metavar="N")] = 200
    """Nodes of the search, after which the best placement found so far is taken."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: the job and a list with one object per placement, the optimum first."""

    def run(self) -> None:
        from pathlib import Path

        from queuewise.cli.console import announce_compilation, print_table
        from queuewise.cli.inputs import waiting_job
        from queuewise.cluster import load_cluster
        from queuewise.policies.budgets import Budgets
        from queuewise.policies.milp.what_if import placement_options
        from queuewise.policies.snapshot import Snapshot

        budgets = Budgets(milp_work=self.milp_work)
        snapshot, cluster = Snapshot.load(Path(self.snapshot)), load_cluster(self.cluster)
        announce_compilation()
        wanted = None if self.job is None else waiting_job(snapshot, self.job)
        job, options = placement_options(snapshot, cluster, f":{self.objective}", job_id=wanted, budgets=budgets)
        if self.json:
            print(json_text.dumps({"job": job, "options": [one.as_dict() for one in options]}, indent=2, allow_nan=False))
            return
        terms = list(options[0].terms)
        rows = []
        for one in options:
            places = ", ".join(f"{node}: {tasks}" for node, tasks, _ in one.places)
            rows.append([one.rule, places, one.why, *(f"{one.terms[name]:g}" for name in terms)])
        print_table(["rule", "tasks by node", "why", *terms], rows, left=3, title=f"job {job} on {cluster.name}")
