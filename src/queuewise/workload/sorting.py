"""Fast stable sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def stable_order(values: NDArray[Any]) -> NDArray[np.int64]:
    """Indices by (value, index).

    NumPy's unstable sort is several times faster than its stable one, so ties are reordered afterwards.
    """
    if (values[1:] >= values[:-1]).all():
        return np.arange(len(values))
    order = np.argsort(values)
    ordered = values[order]
    new_value = ordered[1:] != ordered[:-1]
    if not new_value.all():
        group = np.concatenate([[0], np.cumsum(new_value)])
        order = np.sort(group * len(values) + order) % len(values)
    return order
