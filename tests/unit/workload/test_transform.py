"""Transforms change what they say and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.errors import InputError
from queuewise.workload import Workload
from queuewise.workload.models import generate
from queuewise.workload.transform import filter_jobs, merge, offered_load, rescale_load, split_by_time, stretch, thin, window


def ladder(num: int = 10, **columns: Any) -> Workload:
    """One job every 10 s from 100 s on, of 5 s on 2 GPUs."""
    return Workload(
        submit=100 + 10 * np.arange(num, dtype=np.float64),
        runtime=np.full(num, 5.0),
        num_tasks=np.full(num, 2, np.int32),
        gpu_milli=np.full(num, 1000, np.int32),
        cpu_milli=np.full(num, 3000, np.int32),
        **columns,
    )


def test_window_by_time_is_half_open_and_keeps_times() -> None:
    assert window(ladder(), 110, stop=130).submit.tolist() == [110, 120]


def test_window_by_number_of_jobs() -> None:
    assert window(ladder(), 115, num_jobs=3).submit.tolist() == [120, 130, 140]
    with pytest.raises(InputError, match="only 1 jobs"):
        window(ladder(), 190, num_jobs=2)


@pytest.mark.parametrize("ends", [{}, {"stop": 3.0, "num_jobs": 3}])
def test_window_needs_exactly_one_end(ends: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="exactly one"):
        window(ladder(), 0, **ends)


def test_offered_load_by_hand() -> None:
    # 10 jobs × 5 s × 2 GPUs = 100 GPU-seconds in 90 s on 4 GPUs; 3 cores a task: 300 core-seconds on 12 cores
    assert offered_load(ladder(), gpus=4) == pytest.approx(100 / (4 * 90))
    assert offered_load(ladder(), cores=12) == pytest.approx(300 / (12 * 90))


@pytest.mark.parametrize("workload", [ladder(1), ladder(0)])
def test_no_span_no_load(workload: Workload) -> None:
    with pytest.raises(InputError, match="the load is undefined"):
        offered_load(workload, gpus=4)


@settings(max_examples=30, deadline=None)
@given(load=st.floats(0.01, 10), seed=st.integers(0, 5))
def test_rescaled_load_is_the_load_asked_for(load: float, seed: int) -> None:
    workload = generate("poisson", 50, seed=seed)
    scaled = rescale_load(workload, load, gpus=16)
    assert offered_load(scaled, gpus=16) == pytest.approx(load)
    assert np.array_equal(scaled.runtime, workload.runtime)
    assert scaled.submit[0] == workload.submit[0]


def test_stretch_moves_submissions_and_deadlines_together() -> None:
    workload = ladder(3, deadline=np.array([150.0, np.nan, 180.0]))
    twice = stretch(workload, 2)
    assert twice.submit.tolist() == [100, 120, 140]
    assert twice.deadline - twice.submit == pytest.approx([50, np.nan, 60], nan_ok=True)


@pytest.mark.parametrize("factor", [0, -1, np.inf, np.nan])
def test_impossible_stretch_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="cannot stretch"):
        stretch(ladder(), factor)


def test_thin_keeps_a_random_share_unchanged() -> None:
    workload = generate("poisson", 20_000)
    kept = thin(workload, 0.3, seed=1)
    assert len(kept) == pytest.approx(6000, abs=250)
    rows = np.searchsorted(workload.submit, kept.submit)
    assert np.array_equal(workload.runtime[rows], kept.runtime)
    assert not np.array_equal(thin(workload, 0.3, seed=2).submit, kept.submit)
    assert len(thin(workload, 1.0)) == 20_000


def test_filter_by_partition_user_and_size() -> None:
    workload = Workload(
        submit=np.arange(4.0),
        runtime=np.ones(4),
        num_tasks=np.array([1, 2, 4, 8], np.int32),
        gpu_milli=np.full(4, 1000, np.int32),
        partition=np.array([0, 1, 0, -1], np.int32),
        partitions=("a", "b"),
        user=np.array([0, 0, 1, 1], np.int32),
        users=("ann", "bo"),
    )
    assert filter_jobs(workload, partition="a").submit.tolist() == [0, 2]
    assert filter_jobs(workload, partition=["a", "b"]).submit.tolist() == [0, 1, 2]
    assert filter_jobs(workload, user="bo").submit.tolist() == [2, 3]
    assert filter_jobs(workload, min_size=2, max_size=4).submit.tolist() == [1, 2]
    assert filter_jobs(workload, keep=lambda w: w.submit > 2.5).submit.tolist() == [3]
    with pytest.raises(InputError, match="unknown user 'anne'"):
        filter_jobs(workload, user="anne")


def test_merge_puts_logs_on_one_clock_and_joins_equal_names() -> None:
    first = ladder(2, users=("ann", "bo"), user=np.array([0, 1], np.int32), epoch=1000.0, name="x", job_name=np.array([0, 5], np.int32))
    second = ladder(2, users=("bo", "cy"), user=np.array([0, 1], np.int32), epoch=1005.0, name="y", job_name=np.array([0, -1], np.int32))
    both = merge([first, second])
    assert both.submit.tolist() == [100, 105, 110, 115]
    assert both.epoch == 1000
    assert [both.users[u] for u in both.user] == ["ann", "bo", "bo", "cy"]
    assert both.job_name.tolist() == [0, 6, 5, -1]
    assert both.job_id.tolist() == ["x/0", "y/0", "x/1", "y/1"]


def test_merge_keeps_any_partition_and_any_kind() -> None:
    first = ladder(1, partitions=("a",), partition=np.array([-1], np.int32), kind_sets=((), ("V100",)), kind_set=np.array([1], np.int32))
    second = ladder(
        1, partitions=("b",), partition=np.array([0], np.int32), kind_sets=((), ("T4",), ("V100",)), kind_set=np.array([0], np.int32)
    )
    both = merge([first, second])
    assert both.partition.tolist() == [-1, 1]
    assert [both.kind_sets[k] for k in both.kind_set] == [("V100",), ()]
    with pytest.raises(InputError, match="nothing to merge"):
        merge([])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 20), num=st.integers(1, 60), train=st.floats(0.1, 1), rest=st.floats(0, 1), gap=st.floats(0, 5000))
def test_split_parts_are_apart_in_time_and_lose_only_the_gaps(seed: int, num: int, train: float, rest: float, gap: float) -> None:
    workload = generate("poisson", num, seed=seed)
    validation = (1 - train) * rest
    parts = split_by_time(workload, train, validation, 1 - train - validation, gap)
    whole = split_by_time(workload, train, validation, 1 - train - validation, 0.0)
    assert len(whole.train) + len(whole.validation) + len(whole.test) == num
    assert np.array_equal(np.concatenate([whole.train.submit, whole.validation.submit, whole.test.submit]), workload.submit)
    begin, span = workload.submit[0], np.ptp(workload.submit)
    if len(parts.validation):
        assert parts.validation.submit[0] >= begin + train * span + gap - 1e-6
    if len(parts.test):
        assert parts.test.submit[0] >= begin + (train + validation) * span + gap - 1e-6


def test_split_by_hand() -> None:
    split = split_by_time(ladder(11), 0.6, 0.2, 0.2, gap_s=10)  # 100 … 200: cuts at 160 and 180
    assert split.train.submit.tolist() == [100, 110, 120, 130, 140, 150]
    assert split.validation.submit.tolist() == [170]
    assert split.test.submit.tolist() == [190, 200]


@pytest.mark.parametrize("shares", [(0.5, 0.2, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)])
def test_split_shares_must_make_sense(shares: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="cannot split"):
        split_by_time(ladder(), *shares)
