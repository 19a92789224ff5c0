"""Flat actions and their masks: what networks choose from, and how the environments take it. Layout: spec.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.agents.spec import Spec

Bools = NDArray[np.bool_]
I64 = NDArray[np.int64]


def flat_mask(mask: Any, spec: Spec) -> Bools:
    """[E, A] from the batch's mask; pairs of the joint problem come first, then the wait."""
    slots = spec.layout.window + 1
    flat: Bools = np.concatenate([mask[:, slots:], mask[:, slots - 1 : slots]], axis=1) if spec.problem == "joint" else mask
    return flat


def split_actions(flat: I64, spec: Spec) -> I64:
    """[E] flat actions as the batch takes them: [E], or [E, 2] slot and host of the joint problem."""
    if spec.problem != "joint":
        return flat
    waits = flat == spec.num_actions - 1
    slot = np.where(waits, spec.layout.window, flat // spec.layout.hosts)
    return np.stack([slot, np.where(waits, 0, flat % spec.layout.hosts)], axis=1)
