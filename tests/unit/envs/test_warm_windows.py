"""Windows of a log that begin with the jobs that wait and run then: what is there, who counts, and what is paid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from players import greedy, play_episode, random_legal
from queuewise.cluster.conditions import Conditions, Outage, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.envs import Baseline, QueuewiseEnv, Term
from queuewise.envs.env_setup import build_setup
from queuewise.envs.presets import PRESETS
from queuewise.errors import InputError
from queuewise.evaluation import measure
from queuewise.policies import simulate
from queuewise.sim.core.schedule import DONE
from queuewise.workload.jobs import Workload
from stand_in import busy_days, small_cluster

WAIT = 4
LOG = busy_days(260, load=1.1)


def pair_of_gpus() -> Any:
    return build("pair", [NodeGroup(count=2, gpus=1, kind="T4", idle_watts=50.0)])


def four_jobs() -> Workload:
    """On two GPUs: job 0 (2 GPUs) runs from 0 to 40, job 1 (from 5 on) waits, and jobs 2 and 3 (from 20 and 25 on) are the window."""
    return Workload(
        submit=np.array([0.0, 5.0, 20.0, 25.0]), runtime=np.array([40.0, 30.0, 20.0, 10.0]), num_tasks=np.array([2, 1, 1, 1], np.int32),
        gpu_milli=np.full(4, 1000, np.int32), priority=np.array([1.0, 2.0, 4.0, 8.0]),
        user=np.array([0, 0, 1, 1], np.int32), users=("a", "b"),
    )  # fmt: skip


def env_with(*terms: Term, **settings: Any) -> QueuewiseEnv:
    return QueuewiseEnv(
        "job",
        workload=four_jobs(),
        cluster=pair_of_gpus(),
        episode_jobs=2,
        block=None,
        window=WAIT,
        estimates="oracle",
        reward=terms,
        **settings,
    )


BY_HAND = {  # jobs 1 and 2 run from 40 to 70 and to 60, job 3 from 60 to 70
    "wait": -(20 + 20 + 35),
    "jct": -(20 + 50 + 40 + 45),
    "slowdown": -(20 / 40 + 50 / 30 + 40 / 20 + 45 / 10),
    "bounded_slowdown": -(20 / 40 + 50 / 30 + 40 / 20 + 45 / 10),
    "utilisation": 50.0,
    "elapsed": -50.0,
    "started": 3.0,
    "completed_work": 80.0 + 30.0 + 20.0 + 10.0,
    "priority_completion": 15.0,
    "remaining_work": -(20 * 40 / 2 + 20 * 30 + 30 * 30 / 2 + 20 * 20 + 20 * 20 / 2 + 35 * 10 + 10 * 10 / 2),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_there_counts_from_the_beginning_on(name: str) -> None:
    env = env_with(Term(name=name))
    env.reset(options={"window": 2})
    assert play_episode(env, greedy("fcfs"))[0] == pytest.approx(BY_HAND[name])
    assert env.schedule().start.tolist() == [0.0, 40.0, 40.0, 60.0]


@pytest.mark.parametrize(("per", "size"), [("jobs", 2.0), ("work", 30.0), ("priority", 12.0)])
def test_divisors_are_of_the_windows_own_jobs(per: Any, size: float) -> None:
    env = env_with(Term(name="jct", per=(per,)))
    env.reset(options={"window": 2})
    assert play_episode(env, greedy("fcfs"))[0] == pytest.approx(BY_HAND["jct"] / size)


def test_figures_are_of_the_windows_own_jobs() -> None:
    env = env_with(Term(name="relative"), Term(name="fairness"), baseline=Baseline(policy="fcfs+easy", metric="wait"))
    env.reset(options={"window": 2})
    info: dict[str, Any] = {}
    total, over = 0.0, False
    while not over:
        _, reward, over, _, info = env.step(greedy("fcfs")(env))
        total += reward
    assert total == pytest.approx(0.0 + 1.0)  # it plays what the baseline does, and only user b has jobs of its own there
    tally = info["episode_tally"]
    assert (tally["completed"], tally["unfinished"], tally["mean_wait_s"], tally["mean_jct_s"]) == (2, 0, 27.5, 42.5)
    assert tally["mean_bounded_slowdown"] == pytest.approx((2.0 + 4.5) / 2)
    assert info["metrics"]["jobs"] == 2
    assert info["metrics"]["wait_s"]["mean"] == pytest.approx(27.5)


def test_an_unfinished_episode_counts_its_own_jobs() -> None:
    env = env_with(Term(name="relative"), baseline=Baseline(policy="fcfs+easy", metric="jct"), max_steps=2)
    env.reset(options={"window": 2})
    _, _, _, truncated, _ = env.step(WAIT)
    assert not truncated
    _, reward, _, truncated, info = env.step(WAIT)  # at 40 nothing of the window has ended
    assert truncated
    base, own = (40 + 45) / 2, (20 + 15) / 2
    assert reward == pytest.approx((base - own) / base)
    assert (info["episode_tally"]["completed"], info["episode_tally"]["unfinished"]) == (0, 2)


@pytest.mark.parametrize(
    ("problem", "settings"),
    [
        ("job", {}),
        ("job", {"dispatch": "commit", "backfill": "easy"}),
        ("job", {"stops": 6, "moves": True, "stopping": {"mode": "suspend"}}),
        ("host", {}),
        ("joint", {"skip_forced": True}),
    ],
)
def test_the_return_is_the_score_and_what_the_others_add(problem: str, settings: dict[str, Any]) -> None:
    """Over random windows and random play: own jobs with their whole slowdown, those that were there with what came after."""
    env = QueuewiseEnv(
        problem, workload=LOG, cluster=small_cluster(), episode_jobs=40, block=None, estimates="oracle",
        reward=(Term(name="bounded_slowdown", per=("jobs",)),), never_cut=True, **settings,
    )  # fmt: skip
    rng = np.random.default_rng(2)
    carried = 0
    for number in rng.integers(0, env.setup.source.size, 6).tolist():
        env.reset(options={"window": number})
        total, _ = play_episode(env, random_legal(number))
        episode, schedule = env.batch.episode(0), env.schedule()
        assert (schedule.status == DONE).all()
        first, began = episode.first_own, env.batch.episode(0).task.scale.began
        own = measure.bounded_slowdown(measure.measure_from(schedule, first))
        others = (schedule.end[:first] - began) / np.maximum(schedule.workload.runtime[:first], 10.0)
        assert len(own) == 40
        assert total == pytest.approx(-(own.sum() + others.sum()) / 40)
        carried += first
    assert carried > 20


@pytest.mark.parametrize("estimates", ["oracle", "noisy:1.0"])
def test_a_window_begins_as_the_log_has_it(estimates: str) -> None:
    """Under the policy of the replay before it, the last window goes on as the whole log does."""
    setup = build_setup("job", workload=LOG, cluster=small_cluster(), episode_jobs=60, block=None, estimates=estimates)
    window = setup.source.window(setup.source.size - 1)
    assert window.start is not None
    assert len(window.workload) > 60
    whole = simulate(LOG, small_cluster(), "fcfs+easy", estimates=estimates)
    part = simulate(window.workload, small_cluster(), "fcfs+easy", estimates=window.known, start=window.start)
    rows = np.searchsorted(LOG.job_id, window.workload.job_id)
    assert part.start.tolist() == whole.start[rows].tolist()
    assert part.end.tolist() == whole.end[rows].tolist()


def test_a_window_before_which_nothing_happened_begins_empty() -> None:
    setup = build_setup("job", workload=LOG, cluster=small_cluster(), episode_jobs=10, block=None)
    assert setup.source.warm
    assert setup.source.window(0).start is None
    assert len(setup.window(0).episode.workload) == 10


def test_jobs_with_equal_ids_are_told_apart() -> None:
    same = LOG.replace(job_id=np.zeros(len(LOG), np.int64))
    sizes = [
        len(build_setup("job", workload=jobs, cluster=small_cluster(), episode_jobs=20, block=None).window(100).episode.workload)
        for jobs in (LOG, same)
    ]
    assert sizes[0] == sizes[1] > 20


def test_who_starts_warm() -> None:
    def warm(workload: Any = LOG, **settings: Any) -> bool:
        return build_setup("job", workload=workload, cluster=small_cluster(), episode_jobs=20, block=None, **settings).source.warm

    assert warm()
    assert not warm(start="empty")
    assert not warm("bursty")
    assert not warm([LOG])
    assert not warm(conditions=Conditions(outages=(Outage(node=0, start=100.0, end=200.0),)))
    assert warm(conditions=Conditions(preemption=Preemption(restart_s=5.0)))
    for name in PRESETS:
        assert not build_setup(preset=name, workload=LOG, cluster=small_cluster(), episode_jobs=20, block=None).source.warm


@pytest.mark.parametrize(
    ("workload", "conditions"), [("bursty", {}), ([LOG], {}), (LOG, {"outages": [{"node": 0, "start": 100.0, "end": 200.0}]})]
)
def test_what_cannot_start_warm_is_refused(workload: Any, conditions: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="start='warm'"):
        build_setup("job", workload=workload, cluster=small_cluster(), episode_jobs=20, block=None, start="warm", conditions=conditions)
