from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from queuewise.workload.sorting import stable_order


@given(hnp.arrays(np.float64, st.integers(0, 60), elements=st.sampled_from([-2.5, 0.0, 1.0, 1.5, 7.0, np.inf])))
def test_order_is_that_of_a_stable_sort(values: np.ndarray) -> None:
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()


def test_order_of_many_distinct_values_is_that_of_a_stable_sort() -> None:
    values = np.random.default_rng(1).random(5000)
    assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))
