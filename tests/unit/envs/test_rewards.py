"""Every reward term alone, on episodes computed by hand or measured by `evaluation`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from players import greedy, play_episode, random_legal
from queuewise.cluster.conditions import Conditions, Failures, Outage, Power, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.envs import Baseline, QueuewiseEnv, Term
from queuewise.envs.rewards import TERMS
from queuewise.errors import InputError
from queuewise.evaluation import energy, fairness, measure, utilisation
from queuewise.policies import simulate
from queuewise.sim.core.schedule import FAILED, QUEUED
from queuewise.workload.jobs import Workload
from stand_in import busy_days, small_cluster

WAIT = 4  # the wait of a window of 4
FAILING = Conditions(preemption=Preemption(checkpoint_every_s=120.0, restart_s=60.0), failures=Failures(mtbf_h=0.5, mttr_h=0.1, seed=1))
FAILING_FOR_GOOD = FAILING.model_copy(update={"requeue": False})


def two_jobs(**columns: Any) -> Workload:
    """On two GPUs: job 0 (2 GPUs, 10 s, from 100 s), job 1 (1 GPU, 20 s, from 104 s)."""
    return Workload(
        submit=np.array([100.0, 104.0]), runtime=np.array([10.0, 20.0]), num_tasks=np.array([2, 1], np.int32),
        gpu_milli=np.full(2, 1000, np.int32), **columns,
    )  # fmt: skip


def env_with(*terms: Term, workload: Workload | None = None, **settings: Any) -> QueuewiseEnv:
    cluster = build("pair", [NodeGroup(count=2, gpus=1, kind="T4", idle_watts=50.0)])
    return QueuewiseEnv(
        "job",
        workload=[workload if workload is not None else two_jobs()],
        cluster=cluster,
        window=WAIT,
        estimates="oracle",
        reward=terms,
        **settings,
    )


def rewards_of(env: QueuewiseEnv, actions: list[int]) -> list[float]:
    env.reset()
    steps = [env.step(action) for action in actions]
    assert steps[-1][2], "the episode should have terminated"
    return [step[1] for step in steps]


PLAY = [0, WAIT, WAIT, 0]  # start job 0 at 100; wait until 104 and until 110; start job 1, which ends at 130
BY_HAND = {
    # what happened in [100, 104], [104, 110], [110, 130]
    "completed_work": [0, 0, 20, 20],
    "wait": [0, 0, -6, 0],
    "jct": [0, -4, -12, -20],
    "slowdown": [0, -4 / 10, -(6 / 10 + 6 / 20), -20 / 20],
    "bounded_slowdown": [0, -4 / 10, -(6 / 10 + 6 / 20), -20 / 20],
    "utilisation": [0, 4, 6, 10],
    "flops_utilisation": [0, 4, 6, 10],
    "idle_feasible": [0, 0, 0, 0],
    "noop_feasible": [0, 0, 0, 0],
    "load_balance": [0, 0, 0, -20 * 0.5],
    "energy": [0, -4 * (114 + 126), -6 * (114 + 126), -20 * (114 + 63)],
    "remaining_work": [0, -(20 + 12) / 2 * 4, -(12 / 2 + 20) * 6, -20 / 2 * 20],
    "age": [0, 0, -(6 * 6 / 2), 0],
    "elapsed": [0, -4, -6, -20],
    "started": [1, 0, 0, 1],
    "host_use": [1, 0, 0, 1],
    "host_use_squared": [1, 0, 0, 1],
    "unfinished": [0, 0, 0, 0],
    "illegal": [0, 0, 0, 0],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_term_alone(name: str) -> None:
    assert rewards_of(env_with(Term(name=name)), PLAY) == pytest.approx(BY_HAND[name])


def test_every_term_has_a_test() -> None:
    elsewhere = {"fairness", "deadline", "priority_completion", "time_left", "relative", "log_ratio"}
    elsewhere |= {"work_behind", "noop_work", "undone", "energy_cost"}  # agents/test_published_tasks.py
    assert elsewhere | set(BY_HAND) == set(TERMS)


def test_waiting_while_something_fits_is_charged() -> None:
    """Job 0 is left waiting until 104, with both GPUs idle; then job 1 starts alone and job 0 waits for it."""
    play = [WAIT, 1, WAIT, 0]
    assert rewards_of(env_with(Term(name="idle_feasible")), play) == pytest.approx([-4, 0, 0, 0])
    assert rewards_of(env_with(Term(name="noop_feasible")), play) == pytest.approx([-1, 0, 0, 0])


def test_priorities_and_deadlines() -> None:
    workload = two_jobs(priority=np.array([3.0, 5.0]), deadline=np.array([109.0, 130.0]))
    assert rewards_of(env_with(Term(name="priority_completion"), workload=workload), PLAY) == pytest.approx([0, 0, 3, 5])
    assert rewards_of(env_with(Term(name="priority_completion", per=("priority",)), workload=workload), PLAY) == pytest.approx(
        [0, 0, 3 / 8, 5 / 8]
    )
    assert rewards_of(env_with(Term(name="deadline"), workload=workload), PLAY) == pytest.approx([0, 0, -1, 0])


def test_time_left_and_divisors() -> None:
    # capacity 2, demand × runtime 20 + 20, longest 20: horizon 104 + 3 · 20
    env = env_with(Term(name="time_left", weight=2.0, per=("span",)), horizon_factor=3.0)
    assert rewards_of(env, PLAY) == pytest.approx([0, 0, 0, 2 * (164 - 130) / 64])
    env = env_with(Term(name="completed_work", per=("work", "jobs")))
    assert rewards_of(env, PLAY) == pytest.approx([0, 0, 20 / 80, 20 / 80])


def test_unfinished_work_is_charged_at_a_truncation() -> None:
    env = env_with(Term(name="unfinished"), max_steps=2)
    env.reset()
    env.step(0)
    _, reward, terminated, truncated, _ = env.step(WAIT)  # at 104: job 0 has 12 left, job 1 has 20
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(-32)


def test_terminal_pay_is_the_sum_at_the_end() -> None:
    assert rewards_of(env_with(Term(name="jct"), pay="terminal"), PLAY) == pytest.approx([0, 0, 0, -36])


def test_discounting_is_exact_however_long_the_steps_are() -> None:
    beta = 0.05
    env = env_with(Term(name="wait"), Term(name="completed_work"), discount_per_s=beta)
    env.reset()
    total, worth = 0.0, 1.0
    for action in PLAY:
        _, reward, _, _, info = env.step(action)
        total += worth * reward
        worth *= info["discount"]
    waited = -(np.exp(-beta * 4) - np.exp(-beta * 10)) / beta
    assert total == pytest.approx(waited + 20 * np.exp(-beta * 10) + 20 * np.exp(-beta * 30))


def played(term: str, **settings: Any) -> tuple[float, QueuewiseEnv]:
    """The return of one term over a random episode of 60 jobs on 16 GPUs."""
    env = QueuewiseEnv(
        "job",
        workload=[busy_days(60, load=1.3)],
        cluster=small_cluster(),
        window=60,
        estimates="noisy:0.5",
        reward=(Term(name=term),),
        **settings,
    )
    env.reset()
    return play_episode(env, random_legal(1))[0], env


def test_sums_over_an_episode_are_the_metrics() -> None:
    metrics: dict[str, Callable[[Any], Any]] = {
        "wait": lambda m: -measure.wait(m).sum(),
        "jct": lambda m: -measure.jct(m).sum(),
        "slowdown": lambda m: -measure.slowdown(m).sum(),
        "bounded_slowdown": lambda m: -measure.bounded_slowdown(m).sum(),
        "utilisation": lambda m: utilisation.gpu_utilisation(m) * m.span,
        "flops_utilisation": lambda m: utilisation.flops_utilisation(m) * m.span,
        "energy": lambda m: -(energy.energy_kwh(m) or 0.0) * energy.J_PER_KWH,
        "fairness": fairness.jain_index,
        "elapsed": lambda m: -m.span,
    }
    for term, sums in metrics.items():
        total, env = played(term)
        assert total == pytest.approx(sums(measure.measure(env.schedule())), rel=1e-9), term
        total, env = played(term, stops=5, moves=True, stopping=Preemption(restart_s=60.0, transfer_per_gpu_s=10.0))
        assert env.schedule().preemptions.sum() > 10
        assert total == pytest.approx(sums(measure.measure(env.schedule())), rel=1e-9), term
        total, env = played(term, conditions=FAILING)
        assert env.schedule().preemptions.sum() > 3
        assert total == pytest.approx(sums(measure.measure(env.schedule())), rel=1e-9), term
        if term in ("jct", "slowdown", "bounded_slowdown", "fairness", "elapsed"):  # the others do not know of waking nodes
            total, env = played(term, conditions=Conditions(power=Power(sleep_after_s=60.0, wake_s=300.0)))
            assert total == pytest.approx(sums(measure.measure(env.schedule())), rel=1e-9), term


def test_terms_that_count_jobs_count_each_once_where_some_fail() -> None:
    for term, conditions in itertools.product(("started", "completed_work", "priority_completion"), (FAILING, FAILING_FOR_GOOD)):
        total, env = played(term, conditions=conditions)
        schedule = env.schedule()
        ran, ended = np.isfinite(schedule.start), schedule.finished
        jobs = schedule.workload
        work = jobs.size * jobs.runtime
        counted = {
            "started": ran.sum(),
            "completed_work": work[ended].sum(),
            "priority_completion": jobs.priority[ended].sum(),
        }
        assert total == pytest.approx(counted[term]), term
        assert (schedule.status == FAILED).any() != conditions.requeue


def test_an_episode_whose_nodes_are_gone_ends_with_its_jobs_unfinished() -> None:
    gone = Conditions(outages=tuple(Outage(node=n, start=104.0, end=float("inf")) for n in (0, 1)))
    for skip_forced in (False, True):
        env = env_with(Term(name="unfinished"), conditions=gone, skip_forced=skip_forced)
        env.reset()
        rewards: list[float] = []
        over = False
        while not over:
            _, reward, over, truncated, _ = env.step(0 if not rewards else WAIT)
            rewards.append(reward)
            assert not truncated
        assert rewards == pytest.approx([0.0] * (len(rewards) - 1) + [-40.0])
        assert env.schedule().status.tolist() == [QUEUED, QUEUED]


def test_the_tally_is_that_of_the_metrics_where_jobs_are_stopped() -> None:
    env = QueuewiseEnv("job", workload=[busy_days(60, load=1.3)], cluster=small_cluster(), window=60, stops=5)
    env.reset()
    choose, over = random_legal(1), False
    while not over:
        *_, over, _, info = env.step(choose(env))
    m = measure.measure(env.schedule())
    assert (measure.wait(m) > measure.first_wait(m)).any()
    tally = info["episode_tally"]
    means = {"mean_wait_s": measure.wait(m), "mean_jct_s": measure.jct(m), "mean_bounded_slowdown": measure.bounded_slowdown(m)}
    assert {name: tally[name] for name in means} == pytest.approx({name: values.mean() for name, values in means.items()})


@pytest.mark.parametrize("metric", ["wait", "jct", "slowdown", "bounded_slowdown", "utilisation"])
def test_relative_to_a_baseline(metric: str) -> None:
    """Playing the baseline itself earns nothing; playing another policy earns the relative difference of the means."""
    baseline = Baseline(policy="sjf+greedy", metric=metric)  # type: ignore[arg-type]
    workload, cluster = busy_days(60, load=1.3), small_cluster()
    env = QueuewiseEnv(
        "job", workload=[workload], cluster=cluster, window=60, estimates="oracle", reward=(Term(name="relative"),), baseline=baseline
    )
    env.reset()
    assert play_episode(env, greedy("sjf"))[0] == pytest.approx(0.0, abs=1e-9)
    env.reset()
    total, _ = play_episode(env, greedy("ljf"))
    values = []
    for policy in ("sjf+greedy", "ljf+greedy"):
        m = measure.measure(simulate(workload, cluster, policy, estimates="oracle"))
        figures = {
            "wait": measure.wait(m).mean(), "jct": measure.jct(m).mean(), "slowdown": measure.slowdown(m).mean(),
            "bounded_slowdown": measure.bounded_slowdown(m).mean(), "utilisation": -(utilisation.gpu_utilisation(m) or 0.0),
        }  # fmt: skip
        values.append(figures[metric])
    base, own = values
    assert total == pytest.approx((base - own) / max(base, own, 1.0))
    assert total != 0


def test_bad_rewards_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown reward term 'jtc'.*did you mean 'jct'"):
        Term(name="jtc")
    with pytest.raises(InputError, match="needs a baseline"):
        env_with(Term(name="relative"))
