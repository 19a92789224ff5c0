"""Schedules: how a number goes from its first to its last value while training goes from 0 to 1. One function each in SCHEDULES."""

from __future__ import annotations

import math
from collections.abc import Callable

from queuewise.errors import unknown_name

LEAST = 1e-3  # an exponential schedule to zero ends at this share of its beginning


def constant(progress: float, first: float, last: float, warmup: float) -> float:
    return first


def linear(progress: float, first: float, last: float, warmup: float) -> float:
    return first + (last - first) * progress


def exponential(progress: float, first: float, last: float, warmup: float) -> float:
    if first == 0.0:
        return 0.0
    return first * math.pow(max(last / first, LEAST), progress)


def cosine(progress: float, first: float, last: float, warmup: float) -> float:
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_cosine(progress: float, first: float, last: float, warmup: float) -> float:
    """Up from zero to the first value during the share `warmup`, then down to the last."""
    if progress < warmup:
        return first * progress / warmup
    return cosine((progress - warmup) / (1.0 - warmup), first, last, warmup)


SCHEDULES: dict[str, Callable[[float, float, float, float], float]] = {
    "constant": constant,
    "linear": linear,
    "exponential": exponential,
    "cosine": cosine,
    "warmup_cosine": warmup_cosine,
}


def scheduled(name: str, progress: float, first: float, last: float, warmup: float = 0.0) -> float:
    """The value at `progress`, which is cut to [0, 1]."""
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    return SCHEDULES[name](min(max(progress, 0.0), 1.0), first, last, warmup)
