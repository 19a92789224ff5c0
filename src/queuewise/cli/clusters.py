"""`queuewise clusters`: the presets, and the names that describe a cluster directly."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Clusters:
    """List the clusters included with Queuewise."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list of objects with name, nodes, gpus, cores, kinds, partitions and notes."""

    def run(self) -> None:
        from queuewise.cli.console import figure, note, print_table
        from queuewise.cluster.cluster_loader import SHAPES, load_cluster, preset_names

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
