"""Intervals, paired differences and ranks: what may be called better, and what may not."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.statistics import bootstrap_interval, paired_difference, ranking


def test_interval_of_equal_values_is_that_value() -> None:
    assert bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)


def test_one_window_has_no_interval() -> None:
    assert bootstrap_interval([3.0]) is None
    assert not paired_difference([1.0], [9.0]).better()


def test_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    """For 40 normal values the percentile interval is a little short of 95 %; far from it would be a defect."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(300):
        low, high = bootstrap_interval(rng.normal(5.0, 2.0, 40)) or (0, 0)
        covered += low <= 5.0 <= high
    assert 0.90 <= covered / 300 <= 0.98


def test_interval_is_that_of_the_normal_for_many_values() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, 2000)
    low, high = bootstrap_interval(values) or (0, 0)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_pairing_finds_a_small_steady_gain_that_separate_means_hide() -> None:
    windows = np.random.default_rng(3).lognormal(3, 2, 20)  # windows differ wildly
    gain = paired_difference(windows - 0.5, windows)
    assert gain.diff == pytest.approx(-0.5)
    assert gain.better()
    assert gain.win_rate == 1.0
    assert not paired_difference(windows, windows - 0.5).better()


def test_a_gain_that_is_not_steady_is_not_better() -> None:
    difference = paired_difference([1.0, 9.0, 2.0, 8.0], [2.0, 8.0, 1.0, 9.5])
    assert difference.diff < 0
    assert not difference.better()
    assert difference.win_rate == 0.5


def test_ties_count_half_a_win() -> None:
    assert paired_difference([1.0, 2.0], [1.0, 3.0]).win_rate == 0.75


def test_higher_can_be_better() -> None:
    gain = paired_difference([0.9, 0.8, 0.95], [0.5, 0.5, 0.6], higher_is_better=True)
    assert gain.better(higher_is_better=True)
    assert gain.win_rate == 1.0


def test_unequal_windows_are_refused() -> None:
    with pytest.raises(InputError, match="3 and 2 windows cannot be paired"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])


def test_ranks_with_ties() -> None:
    """b and c differ by noise only: both are second, and the fourth stays fourth."""
    scores = {"d": [9.0, 9.5, 9.2, 9.1], "b": [5.0, 5.2, 5.1, 5.3], "a": [1.0, 1.1, 1.2, 1.0], "c": [5.1, 5.1, 5.2, 5.25]}
    standings = ranking(scores)
    assert [(s.policy, s.rank) for s in standings] == [("a", 1), ("b", 2), ("c", 2), ("d", 4)]
    assert standings[0].vs_best_baseline is not None
    assert standings[0].vs_best_baseline.diff == 0.0
    assert {s.best_baseline for s in standings} == {"a"}


def test_the_best_baseline_is_the_best_of_the_named_ones() -> None:
    scores = {"fcfs": [5.0, 6.0], "model:x": [1.0, 2.0], "sjf": [3.0, 4.0]}
    standings = {s.policy: s for s in ranking(scores, baselines=["fcfs", "sjf"])}
    assert standings["model:x"].best_baseline == "sjf"
    assert standings["model:x"].vs_best_baseline is not None
    assert standings["model:x"].vs_best_baseline.diff == -2.0
    assert ranking({"a": [0.1, 0.2], "b": [0.8, 0.9]}, higher_is_better=True)[0].policy == "b"
