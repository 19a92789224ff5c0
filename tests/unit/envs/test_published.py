"""Presets and views of published schedulers: their vectors and rewards by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.envs import PRESETS, QueuewiseEnv, QueuewiseVectorEnv
from queuewise.envs.features import VIEWS
from queuewise.errors import InputError
from queuewise.workload.jobs import Workload
from stand_in import busy_days, small_cluster

ALMOST_ONE = 1.0 - 1e-5


def jobs(tasks: list[int], runtime: list[float], submit: list[float] | None = None, **columns: Any) -> Workload:
    """Jobs of single-GPU tasks."""
    return Workload(
        submit=np.array(submit or [0.0] * len(tasks)), runtime=np.array(runtime), num_tasks=np.array(tasks, np.int32),
        gpu_milli=np.full(len(tasks), 1000, np.int32), **columns,
    )  # fmt: skip


def gpus(nodes: int, each: int) -> Cluster:
    return build("gpus", [NodeGroup(count=nodes, gpus=each, kind="T4")])


def make(preset: str, workload: Workload, cluster: Cluster, **settings: Any) -> QueuewiseEnv:
    return QueuewiseEnv(preset=preset, view=preset, workload=[workload], cluster=cluster, **settings)


def test_gpu_optimizer() -> None:
    workload = jobs([2, 4, 8], [1000.0, 5000.0, 20_000.0], [0.0, 0.0, 100.0], priority=np.array([5.0, 10.0, 1.0]))
    env = make("gpu-optimizer", workload, gpus(1, 8), window=3)
    work = 2 * 1000 + 4 * 5000 + 8 * 20_000
    horizon = 100 + 1.3 * work / 8
    observation, _ = env.reset()
    assert observation.tolist() == pytest.approx([0.1, 0.5, 0.25, 0, 0.5, 1, 0.5, 0, *[0] * 4, *[0] * 8, 1, 0])
    observation, reward, *_ = env.step(0)  # the third job arrives
    row = [0.5, 1, 0.5, 100 / horizon, 1, 0.1, 1, 0]
    assert observation.tolist() == pytest.approx([*row, *[0] * 4, *[0] * 6, 0.09, 0.09, 0.75, 0.25])
    left = 4 * 5000 + 8 * 20_000 + 2 * 900  # waiting, and running
    assert reward == pytest.approx(-100 / horizon * left / work)
    observation, reward, *_ = env.step(3)  # wait for the end of the first job although the second one fits
    left = 4 * 5000 + 8 * 20_000
    assert reward == pytest.approx(2 * 1000 / work - 900 / horizon * left / work - 0.05 * left / work)


def test_gpu_optimizer_has_210_numbers_as_published() -> None:
    env = make("gpu-optimizer", jobs([1], [10.0]), gpus(1, 8))
    assert env.observation_space.shape == (210,)


def test_drl_scheduler() -> None:
    workload = jobs([2, 4], [3000.0, 30_000.0], priority=np.array([1.0, 2.5]))
    env = make("drl-scheduler", workload, gpus(1, 8))
    observation, _ = env.reset()
    assert env.observation_space.shape == (66,)
    first, second = [2.5 / 5, 0.5, 0.5, 1], [1 / 5, 0.25 * 0.2, 0.25, 0.2]  # by priority
    assert observation.tolist() == pytest.approx([1, *first, *second, *[0] * 14 * 4, 2 / 200])
    observation, *_ = env.step(0)
    assert observation.tolist() == pytest.approx([0.5, *second, *[0] * 15 * 4, 1 / 200])
    _, reward, terminated, *_ = env.step(0)
    assert terminated  # both run: played to the end, the first until 3,000 and the second until 30,000
    use = 3000 * 6 / 8 + 27_000 * 4 / 8
    assert reward == pytest.approx(50 * 3.5 + 1.5 * use - 0.3 * (2 * 3000 + 27_000))


def test_drl_scheduler_charges_ages_and_illegal_actions() -> None:
    workload = jobs([8, 8], [1000.0, 1000.0], priority=np.array([1.0, 1.0]))
    env = make("drl-scheduler", workload, gpus(1, 8))
    env.reset()
    env.step(0)
    _, reward, *_ = env.step(0)  # does not fit: becomes a wait of 1,000 s
    age = 1000 * 1000 / 2
    assert reward == pytest.approx(50 * 1 - 0.05 * age / 1000 + 1.5 * 1000 - 0.3 * 2 * 1000 - 0.1)


def test_lsf() -> None:
    cluster = build("hosts", [NodeGroup(count=1, cpus=8, mem_gib=16), NodeGroup(count=1, cpus=16, mem_gib=64)])
    workload = Workload(
        submit=np.array([0.0, 0.0]), runtime=np.array([60.0, 60.0]), num_tasks=np.ones(2, np.int32),
        cpu_milli=np.full(2, 4000, np.int32), mem_mib=np.array([8192, 4096], np.int32),
    )  # fmt: skip
    env = make("lsf", workload, cluster, estimates="oracle")
    observation, _ = env.reset()
    assert observation.tolist() == pytest.approx([0, 0, 0.5, 0.25, 0, 0, 1, 1, 4 / 16, 8 / 64])
    observation, reward, *_ = env.step(0)
    assert observation.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.25, 0, 0, 1, 1, 4 / 16, 4 / 64])
    assert reward == pytest.approx(0.02 + 0.05 * 0.5 + 0.02 * 0.25)
    _, reward, terminated, *_ = env.step(1)
    assert terminated
    assert reward == pytest.approx(0.02 + 0.05 * 0.25 + 0.02 * 0.0625 - 60)


def rltune_row(wait: float, asks: int, free: int, shown: int, total: int, partial: float, ways: int) -> list[float]:
    """The published formulas, on counts; `shown` is what all jobs shown ask for."""
    starts = {0: 1e-5, 1: ALMOST_ONE}.get(ways, 1.5 * ALMOST_ONE)
    ahead = (free - shown + total) / (2 * total + 1e-5)
    return [wait / 43_200, asks / 4, asks / free / total, ahead, partial, ways / 3 if ways else 1e-5, starts]


def test_rltune() -> None:
    """Three nodes of 4 GPUs. Jobs of 3 and 2 take two of them; the last one has one node left, or that and another."""
    env = make("rltune", jobs([3, 2, 3], [100.0, 200.0, 300.0]), gpus(3, 4), window=4, placement="tier")
    empty = [0.0, 1, 1, 1, 1, 1, 0]
    observation, _ = env.reset()
    rows = [rltune_row(0, asks, 12, 8, 12, 0, 2) for asks in (3, 2, 3)]
    assert observation.tolist() == pytest.approx([*rows[0], *rows[1], *rows[2], *empty])
    env.step(0)
    observation, *_ = env.step(0)
    # 1, 2 and 4 are free: one node holds all three tasks; the 1 and the 2 do so together and leave no node partly used
    assert observation.tolist() == pytest.approx([*rltune_row(0, 3, 7, 3, 12, 2 / 3, 2), *empty * 3])


def test_rltune_says_when_nothing_fits_and_pays_the_difference_at_the_end() -> None:
    env = make("rltune", jobs([4, 4, 1], [100.0, 10.0, 10.0]), gpus(1, 4), window=4)
    env.reset()
    observation, *_ = env.step(0)
    assert observation[[6, 13]].tolist() == pytest.approx([1e-5, 1e-5])
    assert observation[[2, 9]].tolist() == pytest.approx([ALMOST_ONE, ALMOST_ONE])  # nothing is free
    _, reward, *_ = env.step(1)  # the small one first: both jobs wait until 100
    assert reward == 0
    _, reward, terminated, *_ = env.step(0)
    assert terminated
    base, own = (1 + 11 + 12) / 3, (1 + 11 + 12) / 3  # FCFS starts them at 0, 100, 110
    assert reward == pytest.approx((base - own) / max(base, own, 1))


def test_rlscheduler() -> None:
    workload = jobs(
        [4, 2], [50.0, 60.0], requested=np.array([21_600.0, 86_400.0]), user=np.array([0, 1], np.int32), users=("a", "b"),
        group=np.array([-1, 0], np.int32), groups=("g", "h"),
    )  # fmt: skip
    env = make("rlscheduler", workload, gpus(1, 4), window=3)
    observation, _ = env.reset()
    empty = [0.0, 1, 1, 1, 1, 1, 1, 0]
    first = [0, 0.5, ALMOST_ONE, 1, 0.5, 1, 1, ALMOST_ONE]
    second = [0, ALMOST_ONE, 0.5, 1, ALMOST_ONE, 0.5, 1, ALMOST_ONE]
    assert observation.tolist() == pytest.approx([*first, *second, *empty])
    observation, reward, *_ = env.step(0)
    assert reward == 0
    assert observation.tolist() == pytest.approx([*second[:7], 1e-5, *empty * 2])
    _, reward, terminated, *_ = env.step(0)
    assert terminated
    assert reward == pytest.approx(-(1 + 110 / 60) / 2)


@pytest.mark.parametrize("view", VIEWS[1:])
def test_views_stay_in_their_space_and_batches_equal_single_envs(view: str) -> None:
    arguments: dict[str, Any] = {
        "preset": view,
        "view": view,
        "workload": [busy_days(40, load=1.4)],
        "cluster": small_cluster(),
        "window": 8,
    }
    envs, env = QueuewiseVectorEnv(3, threads=2, **arguments), QueuewiseEnv(**arguments)
    batch, _ = envs.reset(seed=4)
    observation, _ = env.reset(seed=4)
    for step in range(60):
        np.testing.assert_array_equal(batch[0], observation)
        assert env.observation_space.contains(observation)
        actions = envs.legal_actions(seed=step)
        observation, _, terminated, truncated, _ = env.step(actions[0])
        batch = envs.step(actions)[0]
        if terminated or truncated:
            break
    assert step > 10
    envs.close()


def test_every_preset_has_its_view_and_views_refuse_other_problems() -> None:
    assert set(PRESETS) == set(VIEWS[1:])
    with pytest.raises(InputError, match="has no view 'lsf'"):
        QueuewiseEnv("job", view="lsf")
    with pytest.raises(InputError, match="has no view 'rltune'"):
        QueuewiseEnv("host", view="rltune")
