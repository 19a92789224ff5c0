"""What a search minimises: `bsld + wait`, `bsld + 0.2*energy` or another weighted sum of figures.

Each counts as the logarithm of its ratio to that of a reference. `bsld` and `wait` are means over jobs. The others, TOTALS, are figures of
all counted jobs together, written so that less is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from queuewise.errors import InputError
from queuewise.evaluation.measure import Measurement
from queuewise.evaluation.metrics import some_figures
from queuewise.workload.plain_numbers import decimal_number

MEANS = ("bsld", "wait")


@dataclass(frozen=True)
class Total:
    """A figure made of metrics (`evaluation.metrics`), of which the greatest counts."""

    metrics: tuple[str, ...]
    less_is_better: Callable[[float], float]
    label: str  # of what `less_is_better` returns
    missing: str  # why there is none


TOTALS = {
    "energy": Total(("energy_kwh",), lambda kwh: kwh, "kWh", "the cluster states no watts"),
    "fairness": Total(("jain_index",), lambda jain: 1 / jain, "1 ÷ Jain index", "the log names no users"),
    "utilisation": Total(("gpu_utilisation", "cpu_utilisation"), lambda used: 1 / used, "1 ÷ use", "the jobs use neither GPUs nor cores"),
    "deadlines": Total(("deadline_misses",), lambda missed: 1 + missed, "1 + missed deadlines", "no job has a deadline"),
}
TERMS = (*MEANS, *TOTALS)


def total_of(name: str, metrics: Mapping[str, float | None]) -> float:
    """A figure of TOTALS from the metrics of a replay."""
    known = [value for metric in TOTALS[name].metrics if (value := metrics[metric]) is not None]
    if not known or not max(known) >= 0:
        raise InputError(f"{name} cannot be part of the objective: {TOTALS[name].missing}", hint="leave it out of --objective")
    return TOTALS[name].less_is_better(max(known))


def totals_of(names: Sequence[str], measured: Measurement) -> dict[str, float]:
    return {name: total_of(name, some_figures(measured, TOTALS[name].metrics)) for name in names}


def totals_in(objective: Mapping[str, float]) -> tuple[str, ...]:
    """The terms of an objective that are no means over jobs."""
    return tuple(name for name in objective if name in TOTALS)


def parse_objective(text: str) -> dict[str, float]:
    """The weight of each figure in a sum such as `bsld + 0.5*wait`."""
    weights: dict[str, float] = {}
    for part in text.split("+"):
        factor, star, name = part.strip().rpartition("*")
        weight = decimal_number(factor.strip()) if star else 1.0
        name = name.strip()
        if name not in TERMS or name in weights or weight is None or not 0 < weight < float("inf"):
            raise InputError(
                f"objective {text!r}: {part.strip()!r} is not a figure with a weight above 0",
                hint=f'write a sum of {", ".join(TERMS)}, each once, for example "bsld + 0.5*wait"',
            )
        weights[name] = weight
    if not set(weights) & set(MEANS):
        raise InputError(f"objective {text!r} has neither bsld nor wait", hint=f'add one of them, for example "wait + {text.strip()}"')
    return weights
