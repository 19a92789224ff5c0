"""The search of `learn`: several runs of CMA-ES one after the other, and the choice between what they find.

A run ends after RUN generations, because a distribution that has become narrow finds nothing more. The next one begins elsewhere and draws
other stretches. What runs find, and the rules that they begin with, are compared on the training days and on the validation days.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.policies.found_rules import FoundRule
from queuewise.policies.window_replays import ReplayOptions
from queuewise.search.beginnings import beginnings, best_beginnings
from queuewise.search.evolution import REFERENCES, Journal, SearchSettings, cost_of, known_references, search
from queuewise.search.objective import totals_in
from queuewise.search.stretches import Stretches
from queuewise.workload.jobs import Workload

JOURNAL = "search.jsonl"  # of the first run; those of later ones have their number in the name
RUN = 250  # generations
MOST_RUNS = 12
BEGINNINGS = 3  # that runs begin with in turn, and that may be chosen as they are
TRAIL = (0.5, 1.0)  # when, in the course of a run, what it has found may be chosen
CHOOSING = 4  # shaken replays of the training days, and of the validation days, that choose


@dataclass
class RuleSearch:
    """A search on the training days of a log. `spent` gives the seconds since the command began."""

    workload: Workload
    cluster: Cluster
    blocks: Mapping[str, range]
    replay: ReplaySettings
    settings: SearchSettings
    out: Path
    spent: Callable[[], float]
    say: Callable[[str], None]
    generations: int = 0

    def run(self, references: Sequence[str], until: float) -> FoundRule:
        """The best rule that is found before so many seconds are spent, but after at least one generation."""
        references = known_references(self.out / JOURNAL) or list(references)
        placement = "".join(references[0].partition("@")[1:])
        begin = best_beginnings(
            self.stretches("train"), beginnings(self.replay.estimates or "", placement), references, self.settings, BEGINNINGS
        )
        found = list(begin)
        for number in range(MOST_RUNS):
            if number and self.spent() > until:
                break
            means = self._run_once(number, begin[number % len(begin)], references, until)
            self.generations += len(means)
            found += [means[math.ceil(share * len(means)) - 1] for share in TRAIL]
        return self._best_of(found, references)

    def stretches(self, block: str) -> Stretches:
        how = self.replay
        options = ReplayOptions("reorder", how.estimates or "", how.seed, how.kill_at_limit, how.conditions)
        return Stretches(self.workload, self.cluster, self.blocks[block], options, totals_in(self.settings.objective))

    def _run_once(self, number: int, beginning: FoundRule, references: list[str], until: float) -> list[FoundRule]:
        """The mean of the distribution after every generation."""
        how = replace(self.settings, seed=self.settings.seed + 1_000_003 * number)
        about = {"workload": self.workload.name, "jobs": len(self.workload), "cluster": self.cluster.name, REFERENCES: references,
                 "beginning": beginning.__dict__, "settings": how.__dict__ | {"estimates": self.replay.estimates}}  # fmt: skip
        path = self.out / (JOURNAL if number == 0 else f"search-{number + 1}.jsonl")
        journal = Journal(path, json.loads(json.dumps(about)), how.population)
        self.say(f"run {number + 1} of the search begins with {beginning.formula}, {beginning.scheduling}")
        means: list[FoundRule] = []
        for found in search(self.stretches("train"), beginning, references, how, journal, lambda: self.spent() > until):
            means.append(found.rule)
            if found.number % 50 == 0:
                self.say(f"generation {found.number}, {self.spent():.0f} s: cost {found.cost:+.3f}, {found.rule.formula}")
            if len(means) == RUN:
                break
        return means

    def _best_of(self, rules: Sequence[FoundRule], references: Sequence[str]) -> FoundRule:
        """The rule of least cost on the training days and the validation days, which count alike."""
        how, costs = self.settings, []
        for block in ("train", "val"):
            stretches, rng = self.stretches(block), np.random.default_rng((how.seed, 2))
            for stretch in [stretches.draw(rng, how.stretch_jobs) for _ in range(CHOOSING)]:
                costs.append(cost_of(stretches.replay([*rules, *references], stretch), how.objective, len(references)))
        return rules[int(np.argmin(np.mean(costs, axis=0)))]
