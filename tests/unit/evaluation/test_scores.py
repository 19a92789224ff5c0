from __future__ import annotations

import pytest

from queuewise.errors import InputError
from queuewise.evaluation.measure import Measurement
from queuewise.evaluation.scores import parse_score, score_values


def test_values_by_hand(counted: Measurement) -> None:
    values = score_values(counted)
    assert values["bsld"] == pytest.approx(1.3125)
    assert values["wait"] == 15.625
    assert values["jct"] == 61.25
    assert values["slowdown"] == pytest.approx(9.5 / 7)
    assert values["util"] == pytest.approx(395 / 720)
    assert values["energy"] == pytest.approx(117_500 / 3.6e6)
    assert values["fairness"] == pytest.approx(0.98693, abs=1e-5)
    assert values["packed"] == 0.75  # job 3 waits first, at 20 s, when 3 of 4 GPUs are taken


def test_single_scores_are_as_they_are_and_sums_are_costs(counted: Measurement) -> None:
    values = score_values(counted)
    util = parse_score("util")
    assert util.higher_is_better
    assert util.of(values, "") == pytest.approx(395 / 720)
    mixed = parse_score("2*bsld + 10*util")
    assert not mixed.higher_is_better
    assert mixed.of(values, "") == pytest.approx(2 * 1.3125 + 10 * (1 - 395 / 720))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bslds", "did you mean 'bsld'"),
        ("x*bsld", "'x' is not a weight"),
        ("-1*wait", "must be positive"),
        ("", "unknown score"),
        ("nan*wait", "positive"),
    ],
)
def test_bad_scores_are_named(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_score(text)


def test_undefined_scores_say_why() -> None:
    with pytest.raises(InputError, match="fcfs, window 2: score 'energy' is undefined: the cluster states no watts"):
        parse_score("energy").of({"energy": None}, "fcfs, window 2")
