"""Intervals, paired differences and ranks: what may be called better, and what may not."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.statistics import ScoreSeries, compare, compare_scores, paired_difference, ranking


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


def test_days_without_waits_do_not_widen_the_interval() -> None:
    """A third of the days are empty under both policies, and on the others one waits half as long, more or less."""
    rng = np.random.default_rng(2)
    other = np.where(np.arange(45) % 3 > 0, rng.lognormal(5.0, 1.5, 45), 0.0)
    gain = paired_difference(0.5 * other * rng.lognormal(0.0, 0.2, 45), other)
    assert gain.ci95 is not None
    low, high = (bound / other.mean() for bound in gain.ci95)
    assert -0.7 < low < -0.5 < high < -0.2
    assert gain.better()


def test_no_interval_of_a_ratio_goes_below_nothing() -> None:
    waits = np.where(np.arange(30) % 3 == 0, np.random.default_rng(6).lognormal(3.0, 2.0, 30), 0.0)
    assert interval(waits)[0] > 0.0
    found = paired_difference(waits[::-1], waits)
    assert found.ci95 is not None
    assert found.ci95[0] > -waits.mean()
    assert found.ci95[1] > 0.0


@pytest.mark.parametrize("units", [6, 30])
def test_one_day_with_waits_tells_nothing(units: int) -> None:
    """The ratio of that day is no more than one figure, however many other days there are."""
    waits = np.zeros(units)
    waits[3] = 1000.0
    gain = paired_difference(0.3 * waits, waits)
    assert gain.diff < 0
    assert gain.ci95 is None
    assert not gain.clear
    assert ScoreSeries.of_means(waits).interval() is None


def test_a_heavy_day_does_not_pretend_that_the_others_are_as_one() -> None:
    """Two days have nearly all the waiting, and the same ratio there; where they are not drawn, the ratio is another one."""
    waits = np.linspace(1.0, 2.0, 40)
    waits[[11, 30]] = 900.0, 1000.0
    mine = 1.1 * waits
    mine[[11, 30]] = 450.0, 500.0
    assert not paired_difference(mine, waits).better()


@pytest.mark.parametrize("units", [8, 30])
def test_where_nobody_waits_at_all_differences_take_the_place_of_ratios(units: int) -> None:
    nothing = np.zeros(units)
    worse = paired_difference(nothing + 1.0, nothing)
    assert worse.ci95 == pytest.approx((1.0, 1.0))
    assert worse.win_rate == 0.0
    assert worse.relative is None
    assert paired_difference(nothing, nothing).ci95 == (0.0, 0.0)
    assert paired_difference([1.0, -1.0, 2.0] * 4, [2.0, -3.0, 4.0] * 4).ci95 is not None


def waits(rng: np.random.Generator, units: int, memory: float) -> tuple[np.ndarray, np.ndarray]:
    """Sums of waits under two equal policies whose ratio lasts from day to day. On 30 % of the days nobody waits."""
    steps = rng.standard_normal((3, units + 100))
    for i in range(1, units + 100):
        steps[:, i] = memory * steps[:, i - 1] + np.sqrt(1 - memory**2) * steps[:, i]
    busy, mine, other = steps[:, 100:]
    base = np.where(busy > -0.52, np.exp(1.5 * busy), 0.0)
    return base * np.exp(0.3 * mine), base * np.exp(0.3 * other)


@pytest.mark.parametrize(("units", "memory"), [(30, 0.3), (200, 0.85)])
def test_intervals_of_waits_hold_the_truth_where_many_days_are_empty_and_differences_last(units: int, memory: float) -> None:
    rng, held, number = np.random.default_rng(4), 0, 250
    for _ in range(number):
        low, high = paired_difference(*waits(rng, units, memory)).ci95 or (1.0, 1.0)
        held += low <= 0.0 <= high
    assert 0.90 <= held / number <= 0.99


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


def test_one_score_alone_is_compared_as_ever() -> None:
    rng = np.random.default_rng(4)
    mine, other = (ScoreSeries.of_means(rng.lognormal(1.0, 0.5, 30)) for _ in range(2))
    alone, single = compare_scores([mine], [other], [2.0]), compare(mine, other)
    assert alone.relative == pytest.approx(single.relative)
    assert single.ci95 is not None
    assert alone.ci95 == pytest.approx([value / other.mean for value in single.ci95])
    assert alone.clear == single.clear


def test_several_scores_are_a_weighted_geometric_mean() -> None:
    mine = [ScoreSeries.of_means([2.0, 2.0, 2.0]), ScoreSeries.of_means([8.0, 8.0, 8.0])]
    other = [ScoreSeries.of_means([4.0, 4.0, 4.0]), ScoreSeries.of_means([4.0, 4.0, 4.0])]
    assert compare_scores(mine, other, [1.0, 1.0]).relative == pytest.approx(0.0)
    assert compare_scores(mine, other, [3.0, 1.0]).relative == pytest.approx(0.5**0.5 - 1)
    gain = compare_scores(mine, other, [3.0, 1.0])
    assert gain.ci95 == pytest.approx((0.5**0.5 - 1, 0.5**0.5 - 1))
    assert gain.clear


def test_interval_of_several_scores_covers_the_true_ratio_as_often_as_it_says() -> None:
    """Two scores of the same days, which go together."""
    rng, covered, number = np.random.default_rng(6), 0, 200
    for _ in range(number):
        days = rng.lognormal(0.0, 0.5, 60)
        series = [
            [ScoreSeries.of_means(days**power * rng.lognormal(-0.02, 0.2, 60) * factor) for power in (1.0, 1.5)] for factor in (0.9, 1.0)
        ]
        found = compare_scores(series[0], series[1], [1.0, 1.0])
        assert found.ci95 is not None
        covered += found.ci95[0] <= -0.1 <= found.ci95[1]
    assert 0.92 <= covered / number <= 0.99
