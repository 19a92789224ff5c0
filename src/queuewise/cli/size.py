"""`queuewise size`: how many nodes does a target need?"""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from queuewise.cli.inputs import read_conditions
from queuewise.cli.progress import progress_of
from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.cluster import Cluster
    from queuewise.evaluation.sizing import Sizing, Target
    from queuewise.sim.core.schedule import Schedule

BAR = 24  # characters


@dataclass(frozen=True)
class Size:
    """Replay a log on clusters of different sizes and find the smallest that meets a target."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A log (the format is detected) or the name of a workload model."""
    target: Annotated[str, tyro.conf.arg(metavar="TARGET")]
    """What to reach: mean, median, max or a percentile of wait, jct, slowdown or bounded slowdown, e.g. "p90 wait < 1h"."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    group: Annotated[str | None, tyro.conf.arg(metavar="GROUP")] = None
    """The group of nodes whose number is varied, if the cluster has several."""
    policy: Annotated[str, tyro.conf.arg(metavar="POLICY")] = "fcfs+easy"
    """The policy to replay."""
    reading: Reading = field(default_factory=Reading)
    estimates: Annotated[str | None, tyro.conf.arg(metavar="KIND")] = None
    """What the policy knows about runtimes: requested, predicted, oracle or noisy:SIGMA. Default: as in simulate."""
    conditions: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with outages, reservations, quotas, … (see docs/conditions.md)."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of a log, or generate N jobs from a model."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for the model, noisy estimates and random policies."""
    plot: Annotated[str | None, tyro.conf.arg(metavar="OUT.png")] = None
    """Plot the curve to this file."""
    allow_rejected: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with exit code 0 even if more than half of the jobs can never run on the cluster that is found (otherwise 3)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: nodes (null if no size meets the target), now, unit, group, curve."""

    def run(self) -> int:
        from queuewise.cli.console import announce_compilation, check_policies, note
        from queuewise.cluster.altered import fit_conditions
        from queuewise.errors import InputError
        from queuewise.evaluation import remarks
        from queuewise.evaluation.sizing import find_size, parse_target
        from queuewise.policies import simulate
        from queuewise.policies.names import plays_apart
        from queuewise.report.figures import figure_target
        from queuewise.workload.estimates import default_estimates

        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        if self.plot:
            figure_target(self.plot)  # a mistake is reported before the work
        target = parse_target(self.target)
        check_policies([self.policy])
        loaded, cluster = self.reading.load_with_cluster(self.log, self.cluster, self.jobs, self.seed, note)
        conditions = read_conditions(self.conditions, loaded.workload, self.reading.load_factor)
        for remark in remarks.equal_requests(loaded.workload, self.estimates or default_estimates(loaded.workload), self.seed):
            note(remark)
        announce_compilation(playing=plays_apart(self.policy))

        def replay(machine: Cluster) -> Schedule:
            there = fit_conditions(conditions, cluster, machine)
            return simulate(loaded.workload, machine, self.policy, estimates=self.estimates, seed=self.seed, conditions=there)

        with progress_of("sizes tried", 12) as advance:
            found = find_size(cluster, target, replay, group=self.group, on_point=lambda point: advance(f"{point.nodes:,}"))
        for line in found.answer.never_ran:
            note(f"with {count_of(found.answer.nodes, found.unit)}: {line}")
        if self.plot:
            from queuewise.report.size_chart import draw_sizes

            draw_sizes(found, target, f"{loaded.workload.name} under {self.policy}", self.plot)
            note(f"written to {self.plot}")
        if self.json:
            print(json_text.dumps(found.as_json(), indent=2, allow_nan=False))
        else:
            _print(found, target, f"{loaded.workload.name} on {cluster.name} under {self.policy}")
        return remarks.exit_code(found.answer.rejected, len(loaded.workload), allowed=self.allow_rejected)


def _print(found: Sizing, target: Target, title: str) -> None:
    from queuewise.cli.console import print_table
    from queuewise.plain_text import printable
    from queuewise.report.readable import duration, figure

    def shown(value: float | None) -> str:
        return duration(value) if target.in_seconds else figure(value, 2)

    headings = [found.unit, target.text.partition("<")[0].strip(), "meets it", "rejected", ""]
    longest = max((point.value or 0.0 for point in found.curve), default=0.0) or 1.0
    any_rejected = any(point.rejected for point in found.curve)
    rows = [
        [
            f"{point.nodes:,}",
            shown(point.value),
            "yes" if point.meets else "no",
            f"{point.rejected:,}" if any_rejected else "–",
            "█" * round(BAR * (point.value or 0.0) / longest),
        ]
        for point in found.curve
    ]
    if found.nodes is None:
        print(f"no size up to {found.curve[-1].nodes:,} {found.unit} meets {target.text}")
    else:
        print(
            printable(f"{target.text} needs {count_of(found.nodes, found.unit)}; there {'is' if found.now == 1 else 'are'} {found.now:,}")
        )
    print_table(headings, rows, title=title, left=0, bars=len(headings) - 1)


def count_of(number: int, unit: str) -> str:
    """1 node, 2 nodes."""
    return f"{number:,} {unit if number != 1 else unit.removesuffix('s')}"
