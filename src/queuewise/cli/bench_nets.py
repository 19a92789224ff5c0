"""`queuewise bench-nets`: parameters, latency and frames per second of networks of several sizes."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from typing import Annotated

import tyro

LONGEST_S = 3600.0
MOST_SHOWN = 100_000  # jobs, hosts or GPUs of an observation


@dataclass(frozen=True)
class BenchNets:
    """Measure networks on this machine with observations of the given shape, to see what a wider or different network costs."""

    nets: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NET")] = ("mlp", "kernel", "attn", "hosts", "joint")
    """Networks to measure."""
    widths: Annotated[tuple[int, ...], tyro.conf.arg(metavar="W")] = (32, 64, 128, 256)
    """Widths of the layers."""
    depth: Annotated[int, tyro.conf.arg(metavar="D")] = 2
    """Hidden layers."""
    window: Annotated[int, tyro.conf.arg(metavar="Q")] = 64
    """Size of the window, in jobs."""
    hosts: Annotated[int, tyro.conf.arg(metavar="H")] = 16
    """Hosts in the cluster."""
    gpus: Annotated[int, tyro.conf.arg(metavar="U")] = 128
    """GPUs in the cluster, 0 for hosts without."""
    seconds: Annotated[float, tyro.conf.arg(metavar="S")] = 0.2
    """Seconds per measurement; there are three for each network and width."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list of objects with network, problem, width, parameters, decision_us, forward_per_s, learn_per_s."""

    def run(self) -> None:
        from queuewise.cli.console import print_table
        from queuewise.errors import InputError, optional_imports
        from queuewise.report.readable import figure

        if min(self.depth, self.window, self.hosts, *self.widths) < 1 or self.gpus < 0 or not 0 <= self.seconds <= LONGEST_S:
            hint = "for example --widths 64 128 --window 64"
            raise InputError(f"sizes must be at least 1, and --seconds from 0 to {LONGEST_S:g}", hint=hint)
        if max(self.window, self.hosts, self.gpus) > MOST_SHOWN:
            raise InputError(f"--window, --hosts and --gpus are at most {MOST_SHOWN:,}", hint="use smaller ones")
        with optional_imports():
            from queuewise.agents.net_speed import measure_networks
        from queuewise.agents.train_settings import MOST_LAYERS, MOST_UNITS
        from queuewise.envs.features import ObservationLayout

        if max(self.widths) > MOST_UNITS or self.depth > MOST_LAYERS:
            raise InputError(f"--widths are at most {MOST_UNITS:,}, and --depth is at most {MOST_LAYERS}", hint="use smaller ones")
        layout = ObservationLayout(self.window, self.hosts, self.gpus or self.hosts)
        rows = measure_networks(self.nets, self.widths, layout, depth=self.depth, seconds=self.seconds)
        if self.json:
            print(json_text.dumps([row.as_json() for row in rows], indent=2))
            return
        table = (
            [
                f"{r.network} ({r.problem})",
                str(r.width),
                figure(r.parameters),
                figure(r.decision_us),
                figure(r.forward_per_s),
                figure(r.learn_per_s),
            ]
            for r in rows
        )
        columns = ["network", "width", "parameters", "µs per decision (compiled)", "frames/s forward", "frames/s learning"]
        print_table(columns, table, title=f"window {self.window}, {self.hosts} hosts, {self.gpus} GPUs")
