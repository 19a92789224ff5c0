"""Schedules, by hand."""

from __future__ import annotations

import pytest

from queuewise.agents.learner import SCHEDULES, scheduled
from queuewise.errors import InputError


@pytest.mark.parametrize(
    ("name", "values"),  # at 0, 1/4, 1/2 and 1 of a way from 8 to 2
    [
        ("constant", [8, 8, 8, 8]),
        ("linear", [8, 6.5, 5, 2]),
        ("exponential", [8, 8 * 0.25**0.25, 4, 2]),
        ("cosine", [8, 5 + 3 * 2**-0.5, 5, 2]),
    ],
)
def test_values(name: str, values: list[float]) -> None:
    assert [scheduled(name, progress, 8.0, 2.0) for progress in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(values)


def test_warmup_rises_and_then_falls() -> None:
    values = [scheduled("warmup_cosine", progress, 8.0, 2.0, 0.2) for progress in (0.0, 0.1, 0.2, 0.6, 1.0)]
    assert values == pytest.approx([0, 4, 8, 5, 2])


@pytest.mark.parametrize("name", SCHEDULES)
def test_progress_beyond_the_end_is_the_end(name: str) -> None:
    assert scheduled(name, 1.7, 8.0, 2.0, 0.1) == scheduled(name, 1.0, 8.0, 2.0, 0.1)
    assert scheduled(name, -1.0, 8.0, 2.0, 0.1) == scheduled(name, 0.0, 8.0, 2.0, 0.1)


def test_to_zero() -> None:
    assert scheduled("exponential", 1.0, 8.0, 0.0) == pytest.approx(0.008)
    assert scheduled("exponential", 0.5, 0.0, 0.0) == 0.0


def test_unknown() -> None:
    with pytest.raises(InputError, match="did you mean 'cosine'"):
        scheduled("cosin", 0.0, 1.0, 0.0)
