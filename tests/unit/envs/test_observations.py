"""What an agent sees, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from players import play_episode, random_legal
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.envs import QueuewiseEnv, QueuewiseVectorEnv, drawing
from queuewise.envs.features import GLOBAL, HOST_FIXED, HOST_LIVE, JOB_FIXED, JOB_LIVE
from queuewise.errors import InputError
from queuewise.workload.jobs import Workload
from stand_in import busy_days, small_cluster

WINDOW = 4
WAIT = WINDOW


def mixed_cluster() -> Cluster:
    """Two T4 nodes of 2 GPUs, one A10 node of 4, with cores and memory."""
    return build(
        "mixed",
        [NodeGroup(count=2, gpus=2, kind="T4", cpus=8, mem_gib=16), NodeGroup(count=1, gpus=4, kind="A10", cpus=16, mem_gib=64)],
        speeds={"A10": 2.0},
    )


def four_jobs(**columns: Any) -> Workload:
    """At 1000 s: 2 GPUs, 8 single-GPU tasks (all there are), half a GPU; at 1100 s: 2 GPUs of T4 only. Estimates 100, 200, 300, 400 s."""
    return Workload(
        submit=np.array([1000.0, 1000.0, 1000.0, 1100.0]),
        runtime=np.array([50.0, 60.0, 70.0, 80.0]),
        requested=np.array([100.0, 200.0, 300.0, 400.0]),
        num_tasks=np.array([1, 8, 1, 1], np.int32),
        gpu_milli=np.array([2000, 1000, 500, 2000], np.int32),
        cpu_milli=np.array([1000, 0, 4000, 0], np.int32),
        mem_mib=np.array([1024, 0, 0, 0], np.int32),
        kind_set=np.array([0, 0, 0, 1], np.int32),
        kind_sets=((), ("T4",)),
        **columns,
    )


def make(**settings: Any) -> QueuewiseEnv:
    arguments: dict[str, Any] = {
        "workload": [four_jobs()],
        "cluster": mixed_cluster(),
        "window": WINDOW,
        "placement": "first",
        "observation": "dict",
    } | settings
    return QueuewiseEnv(settings.pop("problem", "job"), **{k: v for k, v in arguments.items() if k != "problem"})


def column(part: NDArray[np.float32], names: tuple[str, ...], name: str) -> list[float]:
    return [float(value) for value in part[..., names.index(name)].ravel()]


def job(observation: dict[str, Any], name: str) -> list[float]:
    return column(observation["jobs"], (*JOB_FIXED, *JOB_LIVE), name)


def host(observation: dict[str, Any], name: str) -> list[float]:
    return column(observation["hosts"], (*HOST_FIXED, *HOST_LIVE), name)


def overall(observation: dict[str, Any], name: str) -> float:
    return float(observation["global"][GLOBAL.index(name)])


def test_jobs() -> None:
    observation, info = make().reset()
    assert job(observation, "present") == [1, 1, 1, 0]
    assert job(observation, "estimate")[:3] == pytest.approx([np.log1p(x) / np.log1p(30 * 86400) for x in (100, 200, 300)])
    assert job(observation, "size") == pytest.approx([2 / 8, 1, 0.5 / 8, 0])
    assert job(observation, "tasks")[:2] == pytest.approx([np.log(2) / np.log(1025), np.log(9) / np.log(1025)])
    assert job(observation, "gpu") == pytest.approx([0.5, 0.25, 0.125, 0])
    assert job(observation, "cpu") == pytest.approx([1 / 16, 0, 4 / 16, 0])
    assert job(observation, "mem") == pytest.approx([1 / 64, 0, 0, 0])
    assert job(observation, "allowed") == [1, 1, 1, 0]
    assert job(observation, "fits") == [1, 1, 1, 0]
    assert job(observation, "ways") == pytest.approx([4 / 8, 1 / 8, 8 / 8, 0])  # half GPUs with 4 cores each: 2 + 2 + 4
    assert job(observation, "share_of_free") == pytest.approx([2 / 8, 1, 0.5 / 8, 0])
    assert job(observation, "wait") == [0, 0, 0, 0]
    assert job(observation, "slack") == [1, 1, 1, 0]
    assert info["action_mask"].tolist() == [True, True, True, False, True]


def test_what_changes_with_a_start_and_with_time() -> None:
    env = make()
    env.reset()
    observation, _, _, _, info = env.step(0)  # 2 GPUs of node 0, until 1100 as far as anybody knows
    assert job(observation, "present") == [1, 1, 0, 0]
    assert job(observation, "fits") == [0, 1, 0, 0]
    assert info["action_mask"].tolist() == [False, True, False, False, True]
    assert host(observation, "gpu_free") == pytest.approx([0, 1, 1])
    assert host(observation, "core_util") == pytest.approx([1 / 8, 0, 0])
    assert host(observation, "mem_util") == pytest.approx([1 / 16, 0, 0])
    assert host(observation, "remaining") == pytest.approx([100 / 3700, 0, 0])
    assert overall(observation, "gpu_use") == pytest.approx(2 / 8)
    observation, _, _, _, info = env.step(WAIT)  # to 1050, when it ends
    assert info["elapsed_s"] == 50
    assert job(observation, "wait")[:2] == pytest.approx([50 / 3650, 50 / 3650])
    assert host(observation, "remaining") == [0, 0, 0]
    observation, _, _, _, _ = env.step(1)  # half a GPU of node 0
    assert host(observation, "gpu_free") == pytest.approx([0.75, 1, 1])
    assert host(observation, "fragmentation") == pytest.approx([0.75, 0, 0])
    observation, _, _, _, _ = env.step(WAIT)  # to 1100, when the last one arrives
    assert job(observation, "allowed") == pytest.approx([1, 2 / 3, 0, 0])
    assert overall(observation, "queue_length") == pytest.approx(2 / 34)
    assert overall(observation, "running") == pytest.approx(1 / 33)


def test_hosts_that_never_change() -> None:
    observation, _ = make(host_slots=5).reset()
    assert host(observation, "host_present") == [1, 1, 1, 0, 0]
    assert host(observation, "gpu_total") == pytest.approx([0.5, 0.5, 1, 0, 0])
    assert host(observation, "cores_norm") == pytest.approx([0.5, 0.5, 1, 0, 0])
    assert host(observation, "mem_norm") == pytest.approx([0.25, 0.25, 1, 0, 0])
    assert host(observation, "kind") == pytest.approx([0.5, 0.5, 1, 0, 0])
    assert host(observation, "speed") == pytest.approx([0.5, 0.5, 1, 0, 0])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", [0.0] * 8),
        ("per_gpu", [0.25, 0.25, 0.75, 0, 0, 0, 0, 0]),
        ("sorted", [0, 0, 0, 0, 0, 0.25, 0.25, 0.75]),
        ("cdf", [5 / 8, 7 / 8, 7 / 8, 7 / 8, 7 / 8, 1, 1, 1]),
    ],
)
def test_lookahead(mode: str, expected: list[float]) -> None:
    """Two GPUs are held for 100 s, half of a third one for 300 s, as far as anybody knows; the scale is 400 s."""
    env = make(lookahead=mode, time_scale_s=400.0)
    env.reset()
    env.step(0)
    assert env.action_masks().tolist() == [False, True, False, False, True]
    observation, *_ = env.step(1)
    assert observation["lookahead"].tolist() == pytest.approx(expected)
    observation, *_ = env.step(WAIT)  # 1050: two are free again
    observation, *_ = env.step(WAIT)  # 1070: all are
    if mode != "cdf":
        assert observation["lookahead"].tolist() == [0.0] * 8
    else:
        assert observation["lookahead"].tolist() == [1.0] * 8


def test_heuristics_as_features() -> None:
    env = make(scores=("sjf", "ljf", "wfp3"))
    observation, _ = env.reset()
    assert observation["jobs"][:, -3].tolist() == pytest.approx([0, 0.5, 1, 0])
    assert observation["jobs"][:, -2].tolist() == pytest.approx([1, 0.5, 0, 0])
    assert observation["jobs"][:, -1].tolist() == [0, 0, 0, 0]  # nobody has waited yet
    env.step(0)
    observation, *_ = env.step(WAIT)
    # after 50 s: −(50/200)³·8 = −0.125 and −(50/300)³·0.5 ≈ −0.0023
    assert observation["jobs"][:2, -1].tolist() == pytest.approx([0, 1])


def test_recent_usage_of_users() -> None:
    env = make(workload=[four_jobs(user=np.array([0, 1, 1, 0], np.int32), users=("a", "b"))])
    env.reset()
    env.step(0)  # a: 2 × 100
    observation, *_ = env.step(1)  # b: 0.5 × 300
    assert job(observation, "user_usage")[0] == pytest.approx(150 / 350)


def test_the_window_follows_its_order_and_says_what_it_hides() -> None:
    env = make(window=2, window_order="ljf")
    observation, _ = env.reset()
    assert env.window_jobs().tolist() == [2, 1]
    assert overall(observation, "beyond_window") == pytest.approx(1 / 3)
    env.step(0)
    assert env.window_jobs().tolist() == [1, 0]


def test_the_flat_view_is_the_dict_in_one_row() -> None:
    env, flat = make(), make(observation="flat")
    parts, _ = env.reset()
    row, _ = flat.reset()
    np.testing.assert_array_equal(row, np.concatenate([part.ravel() for part in parts.values()]))


def test_gangs_pick_host_by_host() -> None:
    env = make(problem="host", backfill="greedy")
    observation, info = env.reset()
    assert job(observation, "current") == [1, 0, 0, 0]
    assert info["action_mask"].tolist() == [True, True, True, True]
    env.step(2)  # job 0 on the A10
    assert env.schedule().start[0] == 1000
    env.step(3)  # wait until 1025: the A10 is twice as fast
    observation, _, _, _, info = env.step(1)  # the gang of 8: 2 tasks on host 1
    assert job(observation, "current") == pytest.approx([6 / 8, 0, 0, 0])
    assert host(observation, "slots") == pytest.approx([2 / 8, 0, 4 / 8])
    assert info["action_mask"].tolist() == [True, False, True, False]
    env.step(2)
    assert env.schedule().start[1] == np.inf
    env.step(0)
    assert env.schedule().start[1] == 1025
    assert env.schedule().piece_node[1:4].tolist() == [1, 2, 0]


def test_jobs_and_hosts_in_one_decision() -> None:
    env = make(problem="joint")
    _, info = env.reset()
    assert info["host_mask"].tolist() == [[True] * 3, [True] * 3, [True] * 3, [False] * 3]
    _, _, _, _, info = env.step([1, 0])  # the gang of 8 begins with host 0
    assert info["action_mask"].tolist() == [False, True, False, False, False]
    assert info["host_mask"][1].tolist() == [False, True, True]
    env.step([1, 2])
    env.step([1, 1])
    assert env.schedule().start[1] == 1000
    with pytest.raises(InputError, match=r"action \[0, 0\] is not legal"):
        env.step([0, 0])


def test_the_picture_shows_who_holds_which_gpu_and_who_waits() -> None:
    env = make(render_mode="rgb_array", time_scale_s=200.0)
    env.reset()
    empty = env.render()
    env.step(0)  # job 0 on both GPUs of node 0, expected to stay for half the time scale
    image = env.render()
    assert empty is not None
    assert image is not None
    assert empty.shape == image.shape
    top, left, cell, step = 2 * drawing.MARGIN + 6 * drawing.SCALE, drawing.MARGIN, drawing.CELL, drawing.CELL + drawing.GAP
    for g, colour in enumerate([drawing.PALETTE[0], drawing.PALETTE[0], drawing.PAPER]):  # the node has no third GPU
        assert tuple(image[top + cell - 1, left + g * step]) == colour
    assert (empty[top : top + cell, left : left + cell] == drawing.EMPTY).all()
    filled = (image[top : top + cell, left] == drawing.PALETTE[0]).all(axis=1)
    assert filled.tolist() == [False] * (cell // 2) + [True] * (cell // 2)
    window = image[top, left + 4 * step + drawing.MARGIN :]
    assert tuple(window[0]) == drawing._faint(drawing.PALETTE[1]), "job 1 waits and does not fit"


def test_the_headline_of_a_picture_is_legible() -> None:
    image = np.full((20, 40, 3), drawing.PAPER, np.uint8)
    drawing._write(image, 0, 0, "17")
    dots = ["".join("#" if (pixel == drawing.INK).all() else "." for pixel in row[:21:3]) for row in image[:18:3]]
    assert dots == [".#..###", "##....#", ".#....#", ".#...#.", ".#...#.", "###..#."]


def test_the_terminal_shows_nodes_and_window(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(render_mode="human")
    env.reset()
    env.step(0)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()][-7:]
    assert lines[0] == ["0d", "00:00:00", "25%", "q", "2"]
    assert lines[1][1:] == ["00", "00"]
    assert lines[2][1:] == ["··", "··"]
    assert lines[4] == ["job", "size", "estimate", "waited", "fits"]
    assert lines[5] == ["1", "8", "200", "s", "0", "s"]
    assert lines[6] == ["2", "0.5", "300", "s", "0", "s", "yes"]


def test_a_buffer_of_the_callers_receives_the_observations() -> None:
    arguments: dict[str, Any] = {
        "workload": [busy_days(30)],
        "cluster": small_cluster(),
        "window": 8,
        "observation": "flat",
        "estimates": "oracle",
    }
    envs, others = (QueuewiseVectorEnv(3, "job", copy=copy, **arguments) for copy in (True, False))
    envs.reset(seed=1)
    others.reset(seed=1)
    buffer = np.full((2, 3, envs.setup.layout.size), np.nan, np.float32)
    for step in range(40):
        actions = envs.legal_actions(seed=step).copy()
        expected = envs.step(actions)[0]
        out = buffer[step % 2] if step % 3 else None  # now and then into the env's own
        observation = others.step(actions, out=out)[0]
        np.testing.assert_array_equal(observation, expected)
        if out is not None:
            assert np.shares_memory(observation, buffer)
    with pytest.raises(InputError, match="buffer"):
        others.step(others.legal_actions(), out=np.zeros((3, 5), np.float32))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windw": 3}, "unknown setting of an environment .windw."),
        ({"window": 0}, "window = 0"),
        ({"window_order": "wfp3"}, "changes with time"),
        ({"backfill": "esy"}, "unknown backfill"),
        ({"problem": "host", "dispatch": "commit"}, "does not support dispatch=.commit"),
        ({"preset": "rltun"}, "unknown preset"),
        ({"host_slots": 1}, "too few"),
        ({"workload": []}, "list of windows is empty"),
        ({"render_mode": "ascii"}, "unknown render mode"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**settings).reset()


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(InputError, match="has not been reset"):
        make().step(WAIT)


@pytest.mark.parametrize("split", [(0.45, 0.2, 0.35), (0.2, 0.5, 0.3)])
@pytest.mark.parametrize("start", ["warm", "empty"])
def test_windows_of_a_log_stay_in_their_block(start: str, split: tuple[float, float, float]) -> None:
    log = busy_days(200)
    begin, span = log.submit[0], log.submit[-1] - log.submit[0]
    for block, first, last in (("train", 0.0, split[0]), ("val", split[0], split[0] + split[1])):
        env = QueuewiseEnv("job", workload=log, cluster=small_cluster(), episode_jobs=20, block=block, split=split, start=start)
        for seed in range(10):
            env.reset(seed=seed)
            episode = env.batch.episode(0)
            own = episode.workload.submit[episode.first_own :]
            assert len(own) == 20
            assert begin + first * span <= own[0]
            assert own[-1] < begin + last * span


def test_windows_can_be_asked_for() -> None:
    env = QueuewiseEnv("job", workload="poisson", cluster="2x8:T4", episode_jobs=10, pool=3, observation="dict")
    seen = [env.reset(options={"window": number})[0]["jobs"] for number in (0, 1, 0)]
    np.testing.assert_array_equal(seen[0], seen[2])
    assert (seen[0] != seen[1]).any()
    with pytest.raises(InputError, match="no window 3"):
        env.reset(options={"window": 3})
    env.reset(options={"workload": four_jobs()})
    assert len(env.batch.episode(0).workload) == 4
    play_episode(env, random_legal(1))
    assert env.metrics()["completed"] == 4
