"""Published schemes train what --score says, and gpu-optimizer's reward is that of its program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents_setup import small_settings
from queuewise.agents.learner import make_learner
from queuewise.agents.resolved import resolve
from queuewise.agents.scenario import REWARD_OF, Scenario, load_scenario
from queuewise.agents.train_settings import TrainSettings, layered, preset_names, renamed
from queuewise.envs.env_setup import build_setup
from queuewise.envs.presets import PRESETS
from queuewise.envs.stepping import RUNS_ON, TRUNCATED
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure
from queuewise.evaluation.scores import parse_score, score_values
from queuewise.policies import simulate
from queuewise.workload.jobs import WHOLE_GPU, Workload

SCORES = (*REWARD_OF, "return")
BY_METRIC = ("bsld", "slowdown", "wait", "jct", "util", "return")
PRICES = {"power": {"price_per_kwh": 0.3}}


def published(preset: str, score: str, **changes: Any) -> TrainSettings:
    host = PRESETS[preset]["problem"] == "host"
    args = ("max_cores=16", "load=1.5") if host else ("max_gpus=4",)
    cluster = "farm:6,cores=16-16,mem=64-64" if host else "2x4:V100-16"
    own: dict[str, Any] = {
        "workload": "eda" if host else "bursty", "workload_args": args, "cluster": cluster,
        "env": PRESETS[preset]["problem"], "net": "hosts" if host else "kernel", "score": score, "episode_jobs": 12,
        "conditions": PRICES if score == "energy_cost" else {}, "task": {"preset": preset, "window": 8},
    }  # fmt: skip
    return small_settings(**own | changes)


def first_episode(scenario: Scenario) -> tuple[float, Any, int]:
    """Return, schedule and outcome of one episode in which the first legal action is taken."""
    setup = scenario.setup
    batch = setup.batch(1, threads=1)
    batch.begin([0], [setup.window(0)])
    while batch.outcome[0] == RUNS_ON:
        batch.step(np.array([int(np.flatnonzero(batch.mask[0])[0])]))
    found = batch.tally(0)["return"], batch.schedule(0, "fcfs"), int(batch.outcome[0])
    batch.close()
    return found


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("score", SCORES)
def test_the_score_decides_what_is_trained(preset: str, score: str) -> None:
    settings = published(preset, score)
    if preset == "rltune" and score not in BY_METRIC:
        with pytest.raises(InputError, match="cannot go by"):
            load_scenario(settings)
        return
    if score == "energy" and PRESETS[preset]["problem"] == "host":
        return  # the farm states no watts: train refuses it when the baselines are judged
    scenario = load_scenario(settings)
    paid, schedule, outcome = first_episode(scenario)
    task = scenario.setup.settings
    if preset == "rltune":
        metric = {"return": "bsld"}.get(score, score)
        base = simulate(schedule.workload, scenario.cluster, "fcfs@tier1", dispatch="commit", estimates="oracle")
        own, other = (score_values(measure(one))[metric] for one in (schedule, base))
        assert own is not None
        assert other is not None
        wanted = own - other if metric == "util" else (other - own) / max(other, own, 1.0)
        assert paid == pytest.approx(wanted, abs=1e-9)
    elif score == "return":
        assert task.reward == PRESETS[preset]["reward"]
        assert np.isfinite(paid)
    elif outcome != TRUNCATED and score not in ("util", "fairness", "energy", "energy_cost"):
        assert paid == pytest.approx(-(score_values(measure(schedule))[score] or 0.0), rel=1e-9)
    elif score == "energy":
        assert paid == pytest.approx(-(score_values(measure(schedule))["energy"] or 0.0), rel=1e-6)
    elif score == "energy_cost":
        assert paid == pytest.approx(-0.3 * (score_values(measure(schedule))["energy"] or 0.0), rel=1e-6)
    assert resolve(scenario)["score"] == score
    assert parse_score(scenario.settings.objective).name == score


@pytest.mark.parametrize("preset", list(PRESETS))
def test_two_iterations(preset: str) -> None:
    """Every scheme learns by its own reward, and by waiting times."""
    for score in ("return", "wait"):
        settings = published(preset, score, algo="ppo")
        learner = make_learner(load_scenario(settings).setup, settings, 0)
        before = [weights.detach().clone() for weights in learner.network.parameters()]
        figures = [learner.iterate() for _ in range(2)]
        assert all(np.isfinite(list(row.values())).all() for row in figures)
        assert any((old != new).any() for old, new in zip(before, learner.network.parameters(), strict=True))
        learner.close()


def test_ten_steps_of_gpu_optimizer_by_hand() -> None:
    """The published formula, step by step, for a plain play on four GPUs."""
    submit, runtime, gpus = [0.0, 0.0, 10.0, 15.0, 40.0], [30.0, 20.0, 50.0, 5.0, 10.0], [2, 1, 4, 1, 3]
    jobs = Workload(
        submit=np.array(submit), runtime=np.array(runtime), num_tasks=np.array(gpus, np.int32), gpu_milli=np.full(5, WHOLE_GPU, np.int32),
        generated=True,
    )  # fmt: skip
    setup = build_setup(None, preset="gpu-optimizer", workload=[jobs], cluster="1x4:V100-16")
    batch = setup.batch(1, threads=1)
    batch.begin([0], [setup.window(0)])
    work = np.array(runtime) * np.array(gpus)
    total, horizon = work.sum(), 40.0 + 1.3 * max(work.sum() / 4, 50.0)
    now, waiting, arrived = 0.0, [0, 1], 2
    ends: dict[int, float] = {}
    wait = setup.layout.window
    spare = 0
    for step, refuse in zip(range(10), (0, 1, 0, 0, 0, 1, 0, 0, 0, 0), strict=True):
        free = 4 - sum(gpus[j] for j in ends)
        fitting = [j for j in waiting if gpus[j] <= free]
        chosen = fitting[0] if fitting and not refuse else None
        batch.step(np.array([wait if chosen is None else waiting.index(chosen)]))
        if chosen is not None:
            waiting.remove(chosen)
            ends[chosen] = now + runtime[chosen]
        before, done = now, 0.0
        if spare:
            spare -= 1
        else:
            now = min([*ends.values(), *submit[arrived : arrived + 1]])
            ended = [j for j, end in ends.items() if end == now]
            come = [j for j in range(arrived, 5) if submit[j] == now]
            done = sum(work[j] for j in ended)
            ends = {j: end for j, end in ends.items() if j not in ended}
            waiting, arrived, spare = waiting + come, arrived + len(come), len(ended) + len(come) - 1
        left = sum(work[j] for j in waiting) + sum((end - now) * gpus[j] for j, end in ends.items())
        reward = done / total - (now - before) / horizon * left / total
        if chosen is None and fitting:
            reward -= 0.05 * left / total
        over = not waiting and not ends and arrived == 5
        if over:
            reward += (horizon - now) / horizon
        assert batch.rewards[0] == pytest.approx(reward, abs=1e-12), f"step {step}"
        assert (batch.outcome[0] != RUNS_ON) == over
        if over:
            break
    batch.close()


def test_a_truncated_episode_pays_for_jobs_still_to_come() -> None:
    jobs = Workload(
        submit=np.array([0.0, 50.0, 70.0]), runtime=np.array([100.0, 10.0, 20.0]), num_tasks=np.array([1, 2, 4], np.int32),
        gpu_milli=np.full(3, WHOLE_GPU, np.int32), generated=True,
    )  # fmt: skip
    setup = build_setup(None, preset="gpu-optimizer", workload=[jobs], cluster="1x4:V100-16", max_steps=1)
    batch = setup.batch(1, threads=1)
    batch.begin([0], [setup.window(0)])
    batch.step(np.array([0]))  # starts the first job; the second one arrives, and the third never does
    total, horizon, left = 100.0 + 20.0 + 80.0, 70.0 + 1.3 * 100.0, 50.0 + 20.0
    assert batch.outcome[0] == TRUNCATED
    assert batch.rewards[0] == pytest.approx(-50 / horizon * left / total - (left + 80.0) / total)
    batch.close()


def test_jobs_of_stored_runs_are_the_length_of_an_episode() -> None:
    stored = {"workload": "bursty", "jobs": 12, "score": "jct", "task": {"preset": "gpu-optimizer", "window": 8}}
    settings = layered(**renamed(stored))
    assert (settings.episode_jobs, settings.jobs, settings.task.one_event) == (12, None, False)
    assert [term.name for term in load_scenario(settings).setup.settings.reward][:2] == ["completed_work", "remaining_work"]
    assert renamed({"jobs": None, "episode_jobs": 5}) == {"jobs": None, "episode_jobs": 5}


def test_jobs_is_refused_where_it_meant_an_episode() -> None:
    with pytest.raises(InputError, match="called episode_jobs") as refused:
        build_setup("job", jobs=12)
    assert "episode_jobs=12" in str(refused.value.hint)
    with pytest.raises(InputError, match="is a workload model") as refused:
        load_scenario(small_settings(jobs=12))
    assert "--episode-jobs 12" in str(refused.value.hint)


def test_baselines_play_with_the_backfill_and_placement_of_the_task() -> None:
    settings = published("rltune", "bsld", baselines=("fcfs", "sjf@pack", "random"), task={"preset": "rltune", "backfill": "easy"})
    scenario = load_scenario(settings)
    assert scenario.baselines == ("fcfs+easy@tier1", "sjf+easy@pack", "random@tier1")
    found = resolve(scenario)
    assert (found["backfill"], found["placement"], found["baseline"]["policy"]) == ("easy", "tier1", "fcfs+easy@tier1")


def test_return_needs_a_reward() -> None:
    with pytest.raises(InputError, match="none of its own"):
        load_scenario(small_settings(score="return"))


@pytest.mark.parametrize("name", preset_names())
def test_the_first_window_of_every_preset_can_be_drawn(name: str) -> None:
    """The parameters of its workload fit together."""
    assert len(load_scenario(layered(name)).setup.source.window(0).workload) == layered(name).episode_jobs
