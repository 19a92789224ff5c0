"""`queuewise predict`: how well can runtimes of a log be predicted, and what is that worth?"""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from queuewise.plain_text import printable
from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.evaluation.prediction_quality import PredictionQuality, Quality


@dataclass(frozen=True)
class Predict:
    """Predict the runtimes of a log's jobs from what was known when they were submitted, and judge the predictions on later days."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A log (the format is detected)."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    reading: Reading = field(default_factory=Reading)
    split: Annotated[str | None, tyro.conf.arg(metavar="TRAIN,VAL,REPORT")] = None
    """Shares of the log's time span, 0.45,0.2,0.35 by default. The last one counts."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of the log."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed of the predictor."""
    plot: Annotated[str | None, tyro.conf.arg(metavar="OUT.png")] = None
    """Plot calibration and errors to this file."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: r2_log, within_2x and coverage_80 of the best predictions, and all that the tables show."""

    def run(self) -> None:
        from queuewise.cli.console import announce_compilation, note
        from queuewise.errors import InputError
        from queuewise.evaluation.prediction_quality import judge_predictions
        from queuewise.evaluation.protocol import DEFAULT_SPLIT, parse_split
        from queuewise.report.figures import figure_target

        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        if self.plot:
            figure_target(self.plot)  # a mistake is reported before the work
        split = DEFAULT_SPLIT if self.split is None else parse_split(self.split)
        loaded, cluster = self.reading.load_with_cluster(self.log, self.cluster, self.jobs, self.seed, note)
        announce_compilation()
        found = judge_predictions(loaded.workload, cluster, split=split, seed=self.seed)
        if self.plot:
            from queuewise.report.prediction_charts import draw_predictions

            draw_predictions(found, self.plot)
            note(f"written to {self.plot}")
        if self.json:
            print(json_text.dumps(found.as_json(), indent=2, allow_nan=False))
        else:
            _print(found)


def _print(found: PredictionQuality) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import duration, figure

    def row(name: str, one: Quality) -> list[str]:
        return [name, figure(one.jobs), f"{one.within_2x:.0%}", figure(one.median_ratio, 2)]

    columns = ["jobs", "within 2×", "estimate ÷ runtime"]
    print(f"{printable(found.log)}: {next(iter(found.estimates.values())).jobs:,} jobs of the last {found.days} days")
    rows = [[*row(name, one), figure(one.r2_log, 2)] for name, one in found.estimates.items()]
    print_table(["estimates", *columns, "R² of log runtime"], rows)
    print(f"{found.coverage_80:.0%} of the jobs are between the quantiles of 10 % and 90 %; estimate ÷ runtime is the median")
    for what, classes in found.by.items():
        print_table([what, *columns], [row(name, one) for name, one in classes.items()])
    worth = [[one.by, figure(one.bounded_slowdown, 2), duration(one.wait_s)] for one in found.worth]
    print_table(["the rule of wise by", "mean bsld", "mean wait"], worth)
