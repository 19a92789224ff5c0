"""Terms of the reward add up to the return of their episode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents_setup import small_setup
from queuewise.agents.learner import episode_means
from queuewise.agents.training_envs import WATCHED, TrainingEnvs
from queuewise.envs.rewards import Term

REWARD = (Term(name="jct", weight=0.5, per=("jobs",)), Term(name="completed_work", weight=2.0, per=("work",)), Term(name="noop_feasible"))


def tallies_of(envs: TrainingEnvs, number: int) -> list[dict[str, float]]:
    rows, mask = torch.zeros(envs.num_envs, envs.shape.observation_size), torch.zeros(envs.num_envs, envs.shape.num_actions) > 0
    envs.write(rows, mask)
    random = torch.Generator().manual_seed(3)
    found: list[dict[str, float]] = []
    while len(found) < number:
        found += envs.step(torch.multinomial(mask.float(), 1, generator=random).squeeze(1), rows, mask).tallies
    envs.close()
    return found


def test_terms_add_up_to_the_return() -> None:
    told = [tally for tally in tallies_of(TrainingEnvs(small_setup(reward=REWARD), WATCHED, seed=1), 2 * WATCHED) if "reward_jct" in tally]
    assert len(told) >= 2 * WATCHED
    for tally in told:
        terms = {name: value for name, value in tally.items() if name.startswith("reward_")}
        assert set(terms) == {"reward_jct", "reward_completed_work", "reward_noop_feasible"}
        assert sum(terms.values()) == pytest.approx(tally["return"])
        assert terms["reward_completed_work"] == pytest.approx(2.0)
        assert terms["reward_jct"] < 0


def test_only_some_environments_are_watched_and_means_are_over_those() -> None:
    tallies = tallies_of(TrainingEnvs(small_setup(reward=REWARD), WATCHED + 3, seed=1), 2 * WATCHED)
    told = [tally["reward_jct"] for tally in tallies if "reward_jct" in tally]
    assert 0 < len(told) < len(tallies)
    assert episode_means(tallies)["episode/reward_jct"] == pytest.approx(float(np.mean(told)))


def test_one_term_alone_is_the_return() -> None:
    assert not any(name.startswith("reward_") for tally in tallies_of(TrainingEnvs(small_setup(), 2, seed=1), 2) for name in tally)


def test_an_episode_that_was_taken_up_again_is_not_told() -> None:
    envs = TrainingEnvs(small_setup(reward=REWARD), 1, seed=1)
    envs.restore(envs.state())
    first, second = tallies_of(envs, 2)
    assert "reward_jct" not in first
    assert "reward_jct" in second
