"""Replay: sums, priorities, weights and n-step returns by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from queuewise.agents.replay_buffer import ReplayBuffer, SumTree, Transitions, importance, rows_for
from queuewise.agents.training_envs import Step
from queuewise.errors import InputError

NOBODY = np.zeros(0, np.int64)


def play(replay: ReplayBuffer, rewards: Sequence[float], discounts: Sequence[float], cuts: Sequence[int] = ()) -> None:
    """One environment. The state before step t is t + 1, the last of an episode that step t cuts off is 100 + t; actions are t % 2."""
    for t, (reward, discount) in enumerate(zip(rewards, discounts, strict=True)):
        cut = np.array([0]) if t in cuts else NOBODY
        last, mask = torch.full((len(cut), 1), 100.0 + t), torch.tensor([[False, True]]).repeat(len(cut), 1)
        step = Step(np.array([reward]), np.array([False]), np.zeros(1), cut, last, mask, [])
        replay.add(torch.full((1, 1), t + 1.0), torch.tensor([[True, t % 2 == 1]]), np.array([t % 2]), np.array([discount]), step)


def drawn(replay: ReplayBuffer, number: int = 64, beta: float = 0.5) -> Transitions:
    return replay.draw(number, beta, torch.Generator().manual_seed(1))


def transitions(replay: ReplayBuffer) -> dict[float, tuple[float, float, float]]:
    """State -> return, next state, discount."""
    batch = drawn(replay)
    columns = (batch.observations[:, 0], batch.returns, batch.next_observations[:, 0], batch.discounts)
    return {state: tuple(rest) for state, *rest in zip(*(column.tolist() for column in columns), strict=True)}


# --- the tree


def test_levels_fall_into_leaves_as_wide_as_their_numbers() -> None:
    tree = SumTree(5)
    tree.set(np.array([0, 1, 3, 4]), np.array([1.0, 2.0, 0.5, 0.5]))
    assert tree.total == 4.0
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 3.49, 3.5, 3.99])).tolist() == [0, 0, 1, 1, 3, 3, 4, 4]
    tree.set(np.array([1]), 0.0)
    assert tree.total == 2.0
    assert tree.find(np.array([0.5, 1.0, 1.75])).tolist() == [0, 3, 4]


def test_sums_stay_true_and_a_zero_is_never_found() -> None:
    rng = np.random.default_rng(0)
    tree, plain = SumTree(37), np.zeros(37)
    for _ in range(200):
        places = rng.choice(37, 8, replace=False)
        plain[places] = rng.random(8) * (rng.random(8) < 0.5)
        tree.set(places, plain[places])
        assert np.array_equal(tree.leaves, plain)
        assert tree.total == pytest.approx(plain.sum())
        found = tree.find(np.append(rng.random(50) * tree.total, tree.total))  # the last lies beyond all
        assert (plain[found] > 0).all()


def test_one_leaf() -> None:
    tree = SumTree(1)
    tree.set(np.array([0]), 3.0)
    assert (tree.total, tree.find(np.array([2.0])).tolist()) == (3.0, [0])


# --- n-step returns


def test_three_steps_by_hand() -> None:
    """γ = ½: 1 + 2/2 + 4/4 and an eighth of the state three steps on. The last three states do not know theirs yet."""
    replay = ReplayBuffer(16, 1, 1, 2, n_step=3)
    play(replay, [1.0, 2.0, 4.0, 8.0, 16.0], [0.5] * 5)
    assert transitions(replay) == {1.0: (3.0, 4.0, 0.125), 2.0: (6.0, 5.0, 0.125)}


def test_an_end_counts_nothing_beyond_and_a_cut_counts_its_last_state() -> None:
    """Step 1 ends an episode: state 1 earns 1 + 2/2, state 2 earns 2, and nothing of later steps. Step 4 is cut off: state 4 earns
    8 + 16/2 and a quarter of state 104, state 5 earns 16 and half of it. The cut state itself is no transition."""
    replay = ReplayBuffer(16, 1, 1, 2, n_step=3)
    play(replay, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], [0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], cuts=[4])
    found = transitions(replay)
    assert set(found) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert (found[1.0][0], found[1.0][2]) == (2.0, 0.0)
    assert (found[2.0][0], found[2.0][2]) == (2.0, 0.0)
    assert found[3.0] == (4.0 + 4.0 + 4.0, 104.0, 0.125)
    assert found[4.0] == (16.0, 104.0, 0.25)
    assert found[5.0] == (16.0, 104.0, 0.5)


def test_an_old_state_gives_way_and_a_ring_goes_on_at_its_beginning() -> None:
    replay = ReplayBuffer(4, 1, 1, 2, n_step=2)
    play(replay, [float(t) for t in range(10)], [1.0] * 10)
    assert transitions(replay) == {7.0: (6.0 + 7.0, 9.0, 1.0), 8.0: (7.0 + 8.0, 10.0, 1.0)}


def test_actions_and_masks_stay_with_their_states() -> None:
    replay = ReplayBuffer(16, 1, 1, 2, n_step=1)
    play(replay, [0.0] * 6, [1.0] * 6)
    batch = drawn(replay)
    states, following = batch.observations[:, 0].long(), batch.next_observations[:, 0].long()
    assert torch.equal(following, states + 1)
    assert torch.equal(batch.actions, (states - 1) % 2)
    assert torch.equal(batch.masks[:, 1], (states - 1) % 2 == 1)
    assert torch.equal(batch.next_masks[:, 1], (following - 1) % 2 == 1)


def test_returns_of_all_rows() -> None:
    replay = ReplayBuffer(16, 1, 1, 2, n_step=1)
    play(replay, [1.0, 2.0, 4.0], [0.5, 0.0, 0.5])
    assert replay.discounted_returns(16).tolist() == [4.0, 2.0, 2.0]
    assert replay.discounted_returns(2).tolist() == [4.0, 2.0]


# --- priorities


def test_weights_of_importance_by_hand() -> None:
    """Among N = 3 of probabilities ½, ¼, ¼: (N·p)^−β is (3/2)^−½ and (3/4)^−½ twice; the largest becomes 1."""
    expected = [(2 / 3) ** 0.5 / (4 / 3) ** 0.5, 1.0, 1.0]
    assert importance(np.array([0.5, 0.25, 0.25]), 0.5).tolist() == pytest.approx(expected)
    assert importance(np.array([0.5, 0.25, 0.25]), 1.0).tolist() == pytest.approx([0.5, 1.0, 1.0])
    assert importance(np.array([0.5, 0.25, 0.25]), 0.0).tolist() == [1.0, 1.0, 1.0]


def test_what_surprised_is_drawn_in_proportion() -> None:
    """Errors 9 and 1 with α = ½: three times as often, and weights 1/3 and 1 with β = 1. A new one is as likely as the likeliest."""
    replay = ReplayBuffer(16, 1, 1, 2, n_step=1, alpha=0.5)
    play(replay, [0.0] * 3, [1.0] * 3)
    replay.update_priorities(np.array([0, 1]), torch.tensor([9.0, 1.0]))
    batch = drawn(replay, 400, 1.0)
    first = batch.observations[:, 0] == 1.0
    assert int(first.sum()) in range(299, 302)
    assert batch.weights[first].tolist() == pytest.approx([1 / 3] * int(first.sum()))
    assert set(batch.weights[~first].tolist()) == {1.0}
    play(replay, [0.0], [1.0])  # the third is complete now
    states = drawn(replay, 700).observations[:, 0]
    assert int((states == 3.0).sum()) in range(299, 302)


def test_priorities_are_told_and_taken_back() -> None:
    replays = [ReplayBuffer(8, 1, 1, 2, n_step=1, alpha=1.0) for _ in range(2)]
    for replay in replays:
        play(replay, [0.0] * 5, [1.0] * 5)
    replays[0].update_priorities(np.array([0, 3]), torch.tensor([5.0, 0.1]))
    replays[1].priorities = replays[0].priorities
    assert np.array_equal(drawn(replays[0]).places, drawn(replays[1]).places)
    for replay in replays:
        play(replay, [0.0], [1.0])
    assert torch.equal(replays[0].priorities, replays[1].priorities)


def test_memory_is_bounded() -> None:
    assert rows_for(200_000, 32, 1000, 65, 1.0) == 6250
    with pytest.raises(
        InputError, match=r"a replay buffer of 1000000 states of 1000 numbers takes 2.0 GiB, more than 1 .*to 507199 states"
    ):
        rows_for(1_000_000, 32, 1000, 65, 1.0)
