"""`queuewise compare`: compare the policies of several run folders in one table."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Compare:
    """Compare the run folders of several evaluations. All must use the same windows of the same jobs on the same cluster."""

    run_folders: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders written by queuewise evaluate --out."""
    score: Annotated[str, tyro.conf.arg(metavar="SCORE")] = "bsld"
    """Score to rank by: bsld, wait, jct, slowdown, util, energy, fairness, packed, or a sum such as 0.7*bsld+0.3*wait."""
    same: Annotated[str, tyro.conf.arg(metavar="PERCENT")] = "1%"
    """Call policies the same if they differ by less than this, whatever the interval says."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list with one object per policy."""

    def run(self) -> None:
        from queuewise.cli.evaluate import print_result
        from queuewise.errors import InputError
        from queuewise.evaluation.judging import judge
        from queuewise.evaluation.planning import parse_percent
        from queuewise.evaluation.results import join_runs
        from queuewise.evaluation.scores import parse_score

        if not self.run_folders:
            raise InputError("no run folder given", hint="for example queuewise compare runs/a runs/b")
        result = judge(join_runs([Path(run) for run in self.run_folders]), parse_score(self.score), same=parse_percent(self.same))
        if self.json:
            print(json_text.dumps(result.as_json(), indent=2, allow_nan=False))
        else:
            print_result(result, " and ".join(self.run_folders))
