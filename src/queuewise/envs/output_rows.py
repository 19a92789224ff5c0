"""Where envs write what their agents see: one row of a buffer per env, as the addresses that kernels need."""

from __future__ import annotations

from typing import Any

import numpy as np

from queuewise.envs.columns import Output
from queuewise.errors import InputError
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.tables import F32, I8, I64


class OutputRows:
    """A buffer for observations [E, F] with the masks [E, A] and last observations [E, F] that belong to it.

    `before` is the other buffer, if two are written in turn.
    """

    def __init__(self, observations: F32, mask: I8, finals: F32, before: F32 | None = None) -> None:
        if observations.shape != finals.shape or observations.dtype != np.float32 or observations.strides[1] != 4:
            raise InputError(
                f"the buffer for observations is {observations.dtype} {observations.shape}",
                hint=f"give a float32 array of shape {finals.shape} with contiguous rows",
            )
        self.observations = observations
        self.before = observations if before is None else before
        self._job_rows: I64 = np.zeros((len(finals), 1), np.int64)
        columns = (observations, mask, finals, self.before, self._job_rows)
        self.lists: Any  # one per env
        if JIT_DISABLED:
            self.lists = [Output(*rows) for rows in zip(*columns, strict=True)]
            return
        envs = np.arange(len(finals))
        self._addresses: I64 = np.stack([column.ctypes.data + envs * column.strides[0] for column in columns], axis=1)
        self.lists = self._addresses.ctypes.data + envs * self._addresses.strides[0]
