"""Gaussian sequences with memory: what is asked for is what is drawn, and what was drawn is found again."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.workload.models.latent import Autocorrelation, fit_autocorrelation, grouped_rank, normal_scores


def autocorrelation(x: np.ndarray, lag: int) -> float:
    return float(np.corrcoef(x[:-lag], x[lag:])[0, 1])


def test_sample_has_the_autocorrelation_of_the_sum_of_exponentials() -> None:
    memory = Autocorrelation(decays=(2.0, 50.0), weights=(0.3, 0.4))
    x = memory.sample(np.random.default_rng(1), 400_000)
    assert x.mean() == pytest.approx(0.0, abs=0.05)
    assert x.std() == pytest.approx(1.0, abs=0.02)
    for lag in (1, 2, 10, 50, 100):
        assert autocorrelation(x, lag) == pytest.approx(0.3 * np.exp(-lag / 2) + 0.4 * np.exp(-lag / 50), abs=0.02)


def test_without_weights_the_sample_is_white_noise() -> None:
    x = Autocorrelation().sample(np.random.default_rng(1), 100_000)
    assert abs(autocorrelation(x, 1)) < 0.02


def test_fit_finds_the_memory_of_a_sample() -> None:
    truth = Autocorrelation(decays=(3.0, 100.0), weights=(0.4, 0.3))
    found = fit_autocorrelation(truth.sample(np.random.default_rng(3), 300_000))
    for lag in (1, 3, 10, 30, 100, 300):
        expected = 0.4 * np.exp(-lag / 3) + 0.3 * np.exp(-lag / 100)
        fitted = sum(w * np.exp(-lag / d) for d, w in zip(found.decays, found.weights, strict=True))
        assert fitted == pytest.approx(expected, abs=0.03)


def test_fit_sees_only_pairs_of_one_sequence() -> None:
    """Two constant sequences that alternate have no memory across each other when told apart."""
    rng = np.random.default_rng(0)
    x = Autocorrelation(decays=(50.0,), weights=(0.9,)).sample(rng, 40_000)
    mixed = np.where(np.arange(40_000) % 2 == 0, x, -x)
    found = fit_autocorrelation(mixed, np.arange(40_000) % 2)
    assert sum(found.weights) > 0.8
    assert sum(fit_autocorrelation(mixed).weights) < 0.5


def test_constant_sequence_has_no_memory() -> None:
    assert fit_autocorrelation(np.zeros(1000)) == Autocorrelation()


def test_ranks_are_uniform_in_every_group() -> None:
    values = np.array([5.0, 1.0, 3.0, 10.0, 20.0])
    group = np.array([0, 0, 0, 1, 1])
    assert grouped_rank(values, group) == pytest.approx([5 / 6, 1 / 6, 3 / 6, 1 / 4, 3 / 4])


def test_equal_values_have_equal_scores() -> None:
    scores = normal_scores(np.array([1.0, 1.0, 1.0, 7.0]), np.zeros(4, np.int64))
    assert scores[0] == scores[1] == scores[2] < scores[3]
    assert scores[3] == pytest.approx(1.15, abs=0.01)  # Φ⁻¹(7/8)
