"""Intervals, paired differences and ranks: what may be called better, and what may not."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.statistics import ScoreSeries, compare, paired_difference, ranking


def interval(values: object) -> tuple[float, float]:
    found = ScoreSeries.of_means(values).interval()  # type: ignore[arg-type]
    assert found is not None
    return found


def means(scores: dict[str, list[float]]) -> dict[str, ScoreSeries]:
    return {policy: ScoreSeries.of_means(values) for policy, values in scores.items()}


def test_interval_of_equal_values_is_that_value() -> None:
    assert interval([3.0, 3.0, 3.0]) == pytest.approx((3.0, 3.0))
    assert interval([3.0] * 30) == pytest.approx((3.0, 3.0))


def test_one_window_has_no_interval() -> None:
    assert ScoreSeries.of_means([3.0]).interval() is None
    assert not paired_difference([1.0], [9.0]).better()


@pytest.mark.parametrize("units", [6, 40])  # Student's t, and the bootstrap
def test_interval_covers_the_true_mean_as_often_as_it_says(units: int) -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(300):
        low, high = interval(rng.normal(5.0, 2.0, units))
        covered += low <= 5.0 <= high
    assert 0.92 <= covered / 300 <= 0.98


def test_a_mean_is_a_ratio_of_sums_and_its_interval_too() -> None:
    """Days with many jobs count more; a mean of daily means would be biased if long days are bad days."""
    rng = np.random.default_rng(5)
    covered, number = 0, 200
    for _ in range(number):
        jobs = rng.integers(1, 100, 60).astype(float)
        low, high = ScoreSeries(jobs * (1.0 + 0.02 * jobs) * rng.lognormal(-0.125, 0.5, 60), jobs).interval() or (0, 0)
        true = (np.arange(1, 100) * (1.0 + 0.02 * np.arange(1, 100))).mean() / np.arange(1, 100).mean()
        covered += low <= true <= high
    assert 0.90 <= covered / number <= 0.99


def test_interval_is_that_of_the_normal_for_many_values() -> None:
    values = 20 + np.random.default_rng(1).normal(0.0, 1.0, 2000)
    low, high = interval(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.2 * half)


def test_pairing_finds_a_small_steady_gain_that_separate_means_hide() -> None:
    windows = np.random.default_rng(3).lognormal(3, 2, 20)  # windows differ wildly
    gain = paired_difference(windows * 0.97, windows)
    assert gain.relative == pytest.approx(-0.03)
    assert gain.better()
    assert gain.win_rate == 1.0
    assert not paired_difference(windows, windows * 0.97).better()


def test_a_difference_of_no_practical_interest_is_not_better() -> None:
    windows = np.random.default_rng(3).lognormal(3, 2, 20)
    assert paired_difference(windows * 0.995, windows).better()
    negligible = paired_difference(windows * 0.995, windows, same=0.01)
    assert negligible.same
    assert not negligible.better()


def test_many_comparisons_need_a_clearer_difference() -> None:
    rng = np.random.default_rng(11)
    other = rng.lognormal(2, 0.5, 30)
    mine = other * rng.lognormal(-0.15, 0.25, 30)
    alone, among_many = (compare(ScoreSeries.of_means(mine), ScoreSeries.of_means(other), comparisons=number) for number in (1, 50))
    assert alone.better()
    assert not among_many.better()
    assert alone.ci95 == among_many.ci95


def test_scores_that_are_zero_are_compared_by_differences() -> None:
    waits = np.array([0.0, 3.0, 0.0, 5.0, 4.0, 0.0, 2.0, 0.0, 1.0, 6.0, 0.0, 2.0])
    worse = paired_difference(waits + 1.0, waits)
    assert worse.ci95 == pytest.approx((1.0, 1.0))
    assert worse.win_rate == 0.0


def test_a_single_day_with_all_the_difference_gives_a_wide_but_sane_interval() -> None:
    """On 47 of 48 days nothing happens: resamples without the other day have no error, and must not make the interval endless."""
    values = np.ones(48)
    values[20] = 1.1
    low, high = ScoreSeries.of_means(values).interval() or (0.0, 0.0)
    assert 0.95 < low < 1.0
    assert 1.0 < high < 1.05


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
    standings = ranking(means(scores))
    assert [(s.policy, s.rank) for s in standings] == [("a", 1), ("b", 2), ("c", 2), ("d", 4)]
    assert standings[0].vs_best_baseline is not None
    assert standings[0].vs_best_baseline.diff == 0.0
    assert {s.best_baseline for s in standings} == {"a"}


def test_the_best_baseline_is_the_best_of_the_named_ones() -> None:
    scores = {"fcfs": [5.0, 6.0], "model:x": [1.0, 2.0], "sjf": [3.0, 4.0]}
    standings = {s.policy: s for s in ranking(means(scores), baselines=["fcfs", "sjf"])}
    assert standings["model:x"].best_baseline == "sjf"
    assert standings["model:x"].vs_best_baseline is not None
    assert standings["model:x"].vs_best_baseline.diff == -2.0
    assert ranking(means({"a": [0.1, 0.2], "b": [0.8, 0.9]}), higher_is_better=True)[0].policy == "b"
