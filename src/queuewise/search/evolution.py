"""The search itself: CMA-ES over the numbers of a rule, on another varied stretch of the training days in every generation.

All candidates of a generation are replayed on the same stretch, and so are some heuristics, the references. A candidate is judged by the
logarithms of its bounded slowdown and mean wait relative to the best of these there (`cost_of`). After POOL generations the stretches come
again, so that references, which take longer than rules, are replayed once on each. Every generation is appended to a journal. A search
that is started again with the same journal tells the optimiser what it was told before, and continues where it ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.errors import InputError
from queuewise.policies.found_rules import NEVER_NEGATIVE, NUMBERS, ORDER_NUMBERS, FoundRule
from queuewise.regular_files import check_regular
from queuewise.runs import append_text, write_text
from queuewise.search.stretches import Figures, Stretches
from queuewise.workload.jobs import Floats

STEPS = {  # how far the search first goes from where it begins
    "log_runtime": 0.3, "log_width": 0.3, "log_runtime_squared": 0.05, "log_width_squared": 0.05, "log_runtime_log_width": 0.05,
    "share": 1.0, "share_log_runtime": 0.3, "age": 0.3, "log_age_hours": 1.0, "hold": 0.2, "hold_log_runtime": 0.1, "hold_age": 0.5,
    "blocked": 1.0, "blocked_share": 1.0, "guard": 1.0, "hold_share": 0.3,
}  # fmt: skip
BOUNDED_BELOW = ("log_runtime", *NEVER_NEGATIVE)
LEAST_WAIT_S = 600.0  # added to mean waits, so that stretches on which hardly anybody waits say little
FIRST_SPREAD = 0.3  # of the candidates, in STEPS
POOL = 32  # stretches
PULL = 0.003  # what a step away from the beginning costs, squared
WORSE = 2.0  # what the logarithm of a ratio above 1 costs in addition: a figure must not be paid for by another
MOST_SEED = 2**32 - 1  # of the optimiser, which takes 0 for none
REFERENCES = "references"  # key of a journal
LONGEST = 0.1  # weight of the logarithm of the longest wait, where it is longer than the reference's
TOO_LONG, LONG_S = 1.0, 8 * 86_400.0  # further weight where it is also longer than this


@dataclass(frozen=True)
class SearchSettings:
    objective: Mapping[str, float]  # figure: weight
    numbers: tuple[str, ...] = ORDER_NUMBERS  # of a rule that are searched
    population: int = 16
    stretch_jobs: int = 20_000  # at most, in a generation
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Generation:
    number: int
    cost: float  # of the best candidate
    rule: FoundRule  # the mean of the distribution


def cost_of(figures: Figures, objective: Mapping[str, float], references: int) -> Floats:
    """[K − R] costs of the candidates. The last R of the K are references; below 0 is better than the best of them on this stretch.

    Half of it is the mean of the logarithms part by part, and half that of all jobs together, so that neither quiet parts nor a single
    heavy one decide alone.
    """
    padded = {name: figures.values(name) + (LEAST_WAIT_S if name == "wait" else 0.0) for name in objective}
    worth = sum(weight * np.log(padded[name].mean(axis=1)) for name, weight in objective.items())
    best = len(figures.bsld) - references + int(np.argmin(worth[-references:]))
    total = np.zeros(len(figures.bsld) - references)
    for name, weight in objective.items():
        values, own = padded[name][:-references], padded[name][best]
        by_part = np.log(values / own).mean(axis=1)
        of_all = np.log(values.mean(axis=1) / own.mean())
        total += weight * ((by_part + of_all) / 2 + WORSE * np.maximum(of_all, 0.0))
    longest = figures.max_wait.max(axis=1) + 3600.0
    for weight, accepted in ((LONGEST, longest[best]), (TOO_LONG, max(longest[best], LONG_S))):
        total += weight * np.maximum(np.log(longest[:-references] / accepted), 0.0)
    return total


class Journal:
    """Costs of generations, a line each, in a file. The first line says what search it is of."""

    def __init__(self, path: Path, about: Mapping[str, Any], population: int) -> None:
        self._path = path
        lines = _journal_lines(path)
        if lines and lines[0] != about:
            raise InputError("is the journal of another search", where=str(path), hint="choose another --out, or delete the folder")
        self.told: list[list[float]] = list(takewhile(lambda line: _are_costs(line, population), lines[1:]))
        write_text(path, "".join(json.dumps(line) + "\n" for line in (about, *self.told)))

    def add(self, costs: Sequence[float]) -> None:
        append_text(self._path, json.dumps([float(cost) for cost in costs]) + "\n")


def known_references(path: Path) -> list[str] | None:
    """The policies that the costs in a journal are relative to; None if there is no journal.

    A search that continues stays with them: which heuristics are the best of those that could be tried in time may differ from run to run.
    """
    about = next(iter(_journal_lines(path)), None)
    found = about.get(REFERENCES) if isinstance(about, dict) else None
    return found if isinstance(found, list) and found and all(isinstance(one, str) for one in found) else None


def _journal_lines(path: Path) -> list[Any]:
    """The lines up to the first that is damaged, or that was being written when the search was ended."""
    if not path.exists():
        return []
    check_regular(path)
    found: list[Any] = []
    with suppress(ValueError, RecursionError):
        for line in path.read_bytes().splitlines():
            found.append(json.loads(line))
    if not found:
        raise InputError("is damaged: its first line cannot be read", where=str(path), hint="remove it, and the search starts over")
    return found


def _are_costs(line: Any, population: int) -> bool:
    return isinstance(line, list) and len(line) == population and all(isinstance(cost, float) and math.isfinite(cost) for cost in line)


def search(
    stretches: Stretches,
    beginning: FoundRule,
    references: Sequence[str],
    settings: SearchSettings,
    journal: Journal,
    until: Callable[[], bool],
) -> Iterator[Generation]:
    """Generations until `until` says that it is enough, at least one."""
    import cma

    names = settings.numbers
    places = [NUMBERS.index(name) for name in names]
    steps = np.array([STEPS[name] for name in names])
    origin = np.array(beginning.numbers)[places]
    lower = [-start / step if name in BOUNDED_BELOW else None for name, start, step in zip(names, origin, steps, strict=True)]
    options = {"popsize": settings.population, "seed": 1 + settings.seed % MOST_SEED, "verbose": -9, "bounds": [lower, None]}
    strategy = cma.CMAEvolutionStrategy(np.zeros(len(names)), FIRST_SPREAD, options)
    rng = np.random.default_rng(settings.seed)
    pool = [stretches.draw(rng, settings.stretch_jobs, varies=True) for _ in range(POOL)]
    known: dict[int, Figures] = {}  # of the references, by the place of the stretch

    def rule_at(point: Floats) -> FoundRule:
        numbers = np.array(beginning.numbers)
        numbers[places] = origin + steps * point
        return replace(beginning, numbers=tuple(map(float, numbers)))

    number = 0
    while number == 0 or not until():
        points = strategy.ask()
        if number < len(journal.told):
            costs = journal.told[number]
        else:
            place = number % POOL
            if place not in known:
                known[place] = stretches.replay(references, pool[place])
            figures = stretches.replay(list(map(rule_at, points)), pool[place]).followed_by(known[place])
            pull = PULL * np.square(points).sum(axis=1)
            costs = (cost_of(figures, settings.objective, len(references)) + pull).tolist()
            journal.add(costs)
        strategy.tell(points, costs)
        number += 1
        yield Generation(number, min(costs), rule_at(strategy.result.xfavorite))
