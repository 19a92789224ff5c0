"""Scores: one number to optimise, by name or as a weighted sum such as `bsld+0.001*wait`.

A single score is reported unchanged (for `util`, higher is better). In a weighted sum every term is a cost, so weights are positive and
lower is better: `util` becomes the idle share 1 − util, and `fairness` becomes 1 − Jain index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from queuewise.errors import InputError, unknown_name
from queuewise.evaluation import energy, fairness, measure, packing, utilisation
from queuewise.evaluation.measure import Floats, Measurement


def _mean(values: Callable[[Measurement], Floats]) -> Callable[[Measurement], float | None]:
    def mean(m: Measurement) -> float | None:
        sample = values(m)
        return float(sample.mean()) if sample.size else None

    return mean


def machine_utilisation(m: Measurement) -> float | None:
    """Utilisation of the GPUs, or of the cores if the cluster has no GPUs."""
    return utilisation.gpu_utilisation(m) if m.schedule.cluster.num_gpus else utilisation.cpu_utilisation(m)


@dataclass(frozen=True)
class ScoreTerm:
    of: Callable[[Measurement], float | None]
    higher_is_better: bool  # such scores are shares of 1
    undefined: str  # why it can be undefined
    least: float = 0.0  # no schedule has less


def _only_in_tasks(m: Measurement) -> None:
    """A schedule has no return: it depends on the reward of a task, which pays for decisions."""


SCORES: dict[str, ScoreTerm] = {
    "bsld": ScoreTerm(_mean(measure.bounded_slowdown), False, "no job finished", 1.0),
    "wait": ScoreTerm(_mean(measure.wait), False, "no job finished"),
    "jct": ScoreTerm(_mean(measure.jct), False, "no job finished"),
    "slowdown": ScoreTerm(_mean(measure.slowdown), False, "no job with a runtime above zero finished", 1.0),
    "util": ScoreTerm(machine_utilisation, True, "the cluster has neither GPUs nor a limited number of cores, or nothing ran"),
    "energy": ScoreTerm(energy.energy_kwh, False, "the cluster states no watts"),
    "energy_cost": ScoreTerm(energy.energy_cost, False, "the cluster states no watts, or the conditions no price of energy", -inf),
    "fairness": ScoreTerm(fairness.jain_index, True, "the log names no users"),
    "return": ScoreTerm(_only_in_tasks, True, "only train knows it, as the sum of a task's rewards", -inf),
    "packed": ScoreTerm(packing.allocated_at_first_failure, True, "the cluster has no GPU, or every job started immediately"),
}


RLTUNE_SCORES = {f"rltune:{number}": name for number, name in enumerate(("bsld", "wait", "jct", "util", "slowdown"))}  # its score types


@dataclass(frozen=True)
class Score:
    name: str
    terms: tuple[tuple[float, str], ...]  # weight, name in SCORES

    @property
    def higher_is_better(self) -> bool:
        return len(self.terms) == 1 and SCORES[self.terms[0][1]].higher_is_better

    @property
    def least(self) -> float:
        """No schedule has a lower score."""
        if len(self.terms) == 1:
            return self.terms[0][0] * SCORES[self.terms[0][1]].least
        return sum(weight * (0.0 if SCORES[name].higher_is_better else SCORES[name].least) for weight, name in self.terms)

    def of(self, values: Mapping[str, float | None], where: str) -> float:
        """The score, from the values of `score_values`. Raises an InputError if it is undefined."""
        if len(self.terms) == 1:
            weight, name = self.terms[0]
            return weight * _defined(name, values, where)
        return sum(weight * _cost(name, values, where) for weight, name in self.terms)


def score_values(m: Measurement) -> dict[str, float | None]:
    """Every score of one replay by name; None if undefined."""
    return {name: term.of(m) for name, term in SCORES.items()}


def _cost(name: str, values: Mapping[str, float | None], where: str) -> float:
    value = _defined(name, values, where)
    return 1 - value if SCORES[name].higher_is_better else value


def _defined(name: str, values: Mapping[str, float | None], where: str) -> float:
    value = values.get(name)
    if value is None:
        raise InputError(
            f"{where}: score {name!r} is undefined: {SCORES[name].undefined}",
            hint="choose another --score, or a workload and cluster for which it is defined",
        )
    return value


def parse_score(text: str) -> Score:
    """`name`, or `weight*name` terms joined by `+`."""
    terms = []
    for term in text.split("+"):
        weight, star, name = term.strip().rpartition("*")
        name = RLTUNE_SCORES.get(name, name)
        if name not in SCORES:
            raise unknown_name("score", name, SCORES)
        try:
            terms.append((float(weight) if star else 1.0, name))
        except ValueError:
            raise InputError(f"score {text!r}: {weight!r} is not a weight", hint="for example 0.7*bsld+0.3*wait") from None
    if len(terms) > 1 and any(name == "return" for _, name in terms):
        raise InputError(f"score {text!r}: return is no term of a sum", hint="use it alone; --task.reward says what it consists of")
    if any(not 0 < weight < float("inf") for weight, _ in terms):
        raise InputError(f"score {text!r}: weights must be positive", hint="in a sum, util and fairness already count as costs")
    return Score(text, tuple(terms))
