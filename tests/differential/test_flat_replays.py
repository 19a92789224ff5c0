"""The fast replays of the search start every job when the engine does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions, Failures
from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.policies.window_replays import Candidate, ReplayOptions, WindowRows, replay_windows
from queuewise.search.flat_replays import FlatReplays, can_replay, is_flat
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models import generate

OPTIONS = ReplayOptions("reorder", "oracle", 0, False, PERFECT)
BASE = {"log_runtime": 1.0, "log_width": 0.3, "age": 0.2, "blocked": 0.7, "blocked_share": 1.1}
PATIENT = BASE | {"hold_log_runtime": 0.05, "hold_age": 0.3, "guard": 0.5, "hold_share": -0.1}
RULES = {
    "order": BASE | {"blocked": 0.0, "blocked_share": 0.0},
    "static": {"log_runtime": 1.0, "log_width": 1.0},
    "watchful": BASE,
    "unlikely": BASE | {"blocked": -1.0, "age": 2.0, "share": 0.4, "share_log_runtime": -0.3, "log_runtime_squared": 0.02},
    "patient": PATIENT,
    "hours": PATIENT | {"hold": 0.5, "hold_hours": 2.0},
    "all held": {"hold": 0.9, "guard": 100.0},
    "equal scores": {},
}


def jobs_with_ties(seed: int) -> Workload:
    """A few hundred jobs of a model, many of them submitted at one instant, equally long, of length 0, or too wide."""
    rng = np.random.default_rng(seed)
    jobs = generate("lublin", 400, seed)
    submit = np.floor(jobs.submit / 600.0) * 600.0
    runtime = np.where(rng.random(400) < 0.3, 600.0, np.where(rng.random(400) < 0.1, 0.0, np.floor(jobs.runtime)))
    return jobs.replace(submit=submit, runtime=runtime, requested=runtime * np.where(rng.random(400) < 0.5, 1.0, 3.0) + 5.0)


def on_gpus(jobs: Workload) -> Workload:
    """The same jobs with a GPU in place of every core."""
    return jobs.replace(gpu_milli=np.full(len(jobs), 1000, np.int32), cpu_milli=np.zeros(len(jobs), np.int32))


def engine_starts(jobs: Workload, rule: FoundRule, options: ReplayOptions, cluster: str) -> Floats:
    found: list[Floats] = []

    def note(_: Candidate, __: int, schedule: Schedule) -> None:
        found.append(schedule.start)

    everything = [WindowRows(slice(0, len(jobs)), slice(0, len(jobs)))]
    replay_windows(jobs, load_cluster(cluster), [Candidate(0, rule.policy, rule.numbers)], everything, options, 1, note)
    return found[0]


@pytest.mark.parametrize("cluster", ["flat:128", "16x8:V100-16"])
@pytest.mark.parametrize("estimates", ["oracle", "requested", "noisy:1.0"])
@pytest.mark.parametrize("scheduling", ["+easy", "+easy:sjf~1d", "+easy:sjf:noisy:1.0~3h"])
@pytest.mark.parametrize("name", RULES)
def test_starts_are_those_of_the_engine(name: str, scheduling: str, estimates: str, cluster: str) -> None:
    order = "noisy:0.5" if "noisy" in scheduling else ""
    rule = FoundRule(tuple(float(RULES[name].get(number, 0.0)) for number in NUMBERS), order, scheduling, estimates)
    options = replace(OPTIONS, estimates=estimates)
    waited = 0
    for seed in (1, 2):
        jobs = jobs_with_ties(seed) if cluster.startswith("flat") else on_gpus(jobs_with_ties(seed))
        assert is_flat(jobs, load_cluster(cluster), options)
        assert can_replay(rule)
        (found,) = FlatReplays(jobs, load_cluster(cluster), options).starts([rule], 1)
        expected = engine_starts(jobs, rule, options, cluster)
        assert np.array_equal(found, expected)
        assert np.isinf(found).any()
        waited += int(((found > jobs.submit) & np.isfinite(found)).sum())
    assert waited > 50


def test_other_replays_are_left_to_the_engine() -> None:
    jobs = generate("lublin", 10, 1)
    assert not is_flat(jobs, load_cluster("4x8:V100-16"), OPTIONS)
    gpus = on_gpus(jobs)
    assert is_flat(gpus, load_cluster("4x8:V100-16"), OPTIONS)
    assert not is_flat(gpus.replace(gpu_milli=np.full(len(jobs), 2000, np.int32)), load_cluster("4x8:V100-16"), OPTIONS)
    assert not is_flat(gpus.replace(cpu_milli=jobs.cpu_milli), load_cluster("4x8:V100-16"), OPTIONS)
    assert not is_flat(gpus, load_cluster("hetero56"), OPTIONS)
    assert not is_flat(jobs, load_cluster("flat:128"), replace(OPTIONS, dispatch="commit"))
    assert not is_flat(jobs, load_cluster("flat:128"), replace(OPTIONS, conditions=Conditions(failures=Failures(mtbf_h=1.0, mttr_h=1.0))))
    for scheduling in ("+conservative", "+easy:saf", "+easy/3", "+easy@spread", "+greedy", ""):
        assert not can_replay(FoundRule((0.0,) * len(NUMBERS), scheduling=scheduling))
