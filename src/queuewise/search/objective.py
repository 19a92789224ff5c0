"""What a search minimises: `bsld + wait` or another weighted sum of figures, each as the logarithm of its ratio to a reference."""

from __future__ import annotations

from queuewise.errors import InputError
from queuewise.workload.plain_numbers import decimal_number

TERMS = ("bsld", "wait")


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
                hint=f'write a sum of {" and ".join(TERMS)}, each once, for example "bsld + 0.5*wait"',
            )
        weights[name] = weight
    return weights
