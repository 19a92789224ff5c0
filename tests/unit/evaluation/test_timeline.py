"""Step functions in bins, against a brute-force integral, and the breakdown tables by hand."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.breakdown import breakdown, size_class, size_label
from queuewise.evaluation.measure import Measurement
from queuewise.evaluation.timeline import binned_mean, mean_busy_cores, mean_busy_gpus, mean_queue, mean_watts


def test_binned_means_equal_the_sum_of_overlaps() -> None:
    rng = np.random.default_rng(2)
    begin = rng.uniform(-5, 12, 200)
    end = begin + rng.exponential(3, 200)
    end[:5] = np.inf
    weight = rng.uniform(0, 2, 200)
    edges = np.sort(np.concatenate(([0.0, 10.0], rng.uniform(0, 10, 6))))
    overlap = np.minimum(end[:, None], edges[1:]) - np.maximum(begin[:, None], edges[:-1])
    expected = (np.maximum(overlap, 0) * weight[:, None]).sum(axis=0) / np.diff(edges)
    assert binned_mean(begin, end, weight, edges) == pytest.approx(expected)


def test_busy_gpus_and_cores_by_hand(counted: Measurement) -> None:
    """From 0 to 90 s: 127.5 GPU-seconds on node 0 and 180 on node 1; 160 and 180 core-seconds."""
    edges = np.array([0.0, 90.0, 180.0])
    assert mean_busy_gpus(counted, edges) == pytest.approx([307.5 / 90, 87.5 / 90])
    assert mean_busy_cores(counted, edges) == pytest.approx([340 / 90, 115 / 90])
    assert mean_watts(counted, edges) == pytest.approx([73_825 / 90, 43_675 / 90])


def test_queue_by_hand(counted: Measurement) -> None:
    """Jobs 3, 4, 6 and 9 wait in the first half for 30 + 15 + 40 + 10 s; 6 and 9 in the second for 10 + 30 + 90 s."""
    assert mean_queue(counted, np.array([0.0, 90.0, 180.0])) == pytest.approx([95 / 90, 130 / 90])


def test_breakdown_by_user(counted: Measurement) -> None:
    a, b, c = breakdown(counted, "user")
    assert (a.key, a.jobs, a.wait_mean_s, a.jct_mean_s) == ("a", 4, 20.0, 58.75)
    assert a.bounded_slowdown_mean == pytest.approx(1.4)
    assert a.gpu_hours == pytest.approx((100 + 5 + 50) / 3600)
    assert (b.key, b.jobs, b.wait_p50_s) == ("b", 2, 15.0)
    assert b.wait_p95_s == pytest.approx(28.5)
    assert (c.key, c.jobs) == ("c", 2)
    assert c.core_hours == pytest.approx(120 / 3600)


def test_breakdown_by_size_and_priority(counted: Measurement) -> None:
    assert [(row.key, row.jobs) for row in breakdown(counted, "size")] == [("<1", 2), ("1", 3), ("2", 3)]
    assert [(row.key, row.jobs) for row in breakdown(counted, "priority")] == [("1", 4), ("2", 4)]
    assert [row.key for row in breakdown(counted, "group")] == ["unknown"]
    with pytest.raises(InputError, match="unknown breakdown"):
        breakdown(counted, "colour")


def test_quantiles_of_classes_are_those_of_numpy(counted: Measurement) -> None:
    from queuewise.evaluation.breakdown import _quantiles

    rng = np.random.default_rng(0)
    code, x = rng.integers(0, 5, 300), rng.normal(size=300)
    (median, p95) = _quantiles(x, code, np.bincount(code), (0.5, 0.95))
    assert median == pytest.approx([np.quantile(x[code == c], 0.5) for c in range(5)])
    assert p95 == pytest.approx([np.quantile(x[code == c], 0.95) for c in range(5)])


def test_size_classes() -> None:
    assert [size_label(c) for c in range(6)] == ["<1", "1", "2", "3–4", "5–8", "9–16"]
    assert size_class(np.array([0.5, 1, 2, 3, 4, 5, 8, 9])).tolist() == [0, 1, 2, 3, 3, 4, 4, 5]
