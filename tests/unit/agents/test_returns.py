"""Advantages and the scale of returns, by hand."""

from __future__ import annotations

import pytest
import torch

from queuewise.agents.values import ReturnScale, advantages


def test_advantages_by_hand() -> None:
    """γ = 0.9, λ = 0.5; three steps, no end: δ = 1 + 0.9·4 − 2, 2 + 0.9·8 − 4, 3 + 0.9·16 − 8."""
    rewards = torch.tensor([[1.0], [2.0], [3.0]])
    values = torch.tensor([[2.0], [4.0], [8.0], [16.0]])
    result = advantages(rewards, values, torch.full((3, 1), 0.9), 0.5)
    last = 9.4
    middle = 5.2 + 0.45 * last
    first = 2.6 + 0.45 * middle
    assert result.squeeze(1).tolist() == pytest.approx([first, middle, last])


def test_nothing_leaks_from_the_next_episode() -> None:
    """The episode ends with the second step: neither the third reward nor its value counts before."""
    values = torch.tensor([[2.0], [4.0], [8.0], [16.0]])
    discounts = torch.tensor([[0.9], [0.0], [0.9]])
    results = [advantages(torch.tensor([[1.0], [2.0], [third]]), values, discounts, 0.5).squeeze(1).tolist() for third in (3.0, 1000.0)]
    assert results[0][1] == pytest.approx(2.0 - 4.0)
    assert results[0][0] == pytest.approx(1.0 + 0.9 * 4.0 - 2.0 + 0.45 * (2.0 - 4.0))
    assert results[0][:2] == results[1][:2]


def test_lambda_one_without_discount_is_the_return_minus_the_value() -> None:
    rewards, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[5.0], [5.0], [5.0], [7.0]])
    assert advantages(rewards, values, torch.ones(3, 1), 1.0).squeeze(1).tolist() == pytest.approx([13 - 5, 12 - 5, 10 - 5])


def test_scale_of_returns() -> None:
    scale = ReturnScale()
    assert scale.normalise(torch.tensor([3.0])).item() == 3.0  # nothing known yet
    scale.update(torch.tensor([1.0, 3.0]))
    assert (scale.mean, scale.deviation) == pytest.approx((2.0, 1.0))
    scale.update(torch.tensor([5.0, 7.0]))  # the second update weighs a half
    assert scale.mean == pytest.approx(4.0)
    assert scale.deviation == pytest.approx((21.0 - 16.0) ** 0.5)
    values = torch.tensor([-4.0, 0.0, 11.0])
    assert scale.denormalise(scale.normalise(values)).tolist() == pytest.approx(values.tolist(), abs=1e-5)


def test_scale_of_equal_returns_does_not_divide_by_zero() -> None:
    scale = ReturnScale()
    scale.update(torch.full((8,), 2.5))
    assert scale.normalise(torch.tensor([2.5])).item() == pytest.approx(0.0, abs=1e-3)
