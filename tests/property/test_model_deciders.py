"""Trained models as deciders: asked instant by instant, through snapshots, they make the schedules of whole replays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from agreement import assert_possible
from effort import tries
from model_setup import EAGER, make_model
from queuewise import Snapshot, simulate
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.errors import InputError
from queuewise.policies.compiled_decider import make_decider
from queuewise.policies.interface import Decision, View
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import QUEUED, Schedule
from strategies import BOUNDS, DISPATCHES, WITHOUT_LOOPS, Case, crowded, worlds
from views import Retold, has_queues_joined_by_jobs

COSTS = (Preemption(), Preemption(restart_s=0.5, transfer_s=1.0), Preemption(mode="kill", checkpoint_every_s=2.0))
PLACEMENTS = ("", "@first", "@spread", "@tier", "@fastest")
RULES = ("", *(f"+{name}" for name in WITHOUT_LOOPS if name != "easy-strict"))  # easy-strict decides after every event


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    home = tmp_path_factory.mktemp("models")

    @cache
    def find(net: str, seed: int, **task: Any) -> Path:
        run = home / f"{net}-{seed}-{'-'.join(map(str, task.values()))}"
        make_model(run, net, seed=seed, decision="best", task={"window": 4} | task)
        return run

    return find


class ThroughJson:
    """A decider whose views have been JSON. It notes whether it was ever asked on an idle cluster, where it may not wait."""

    def __init__(self, policy: str, **options: Any) -> None:
        self._decider = make_decider(policy, **options)
        self.was_idle = False

    @property
    def wake_at(self) -> float:
        return self._decider.wake_at  # type: ignore[attr-defined, no-any-return]

    def reset(self, cluster: Any, seed: int) -> None:
        self._decider.reset(cluster, seed)

    def decide(self, view: View) -> list[Decision]:
        self.was_idle |= not view.running
        return list(self._decider.decide(Retold(view)))  # type: ignore[arg-type]


def replay_asking(case: Case, conditions: Conditions, decider: ThroughJson, whole: Schedule, start: Snapshot | None = None) -> Schedule:
    """The replay under the decider. A job that no node remains for can hide others from a network for good, in the whole replay as well."""
    options: dict[str, Any] = {"estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    try:
        return simulate(case.workload, case.cluster, decider, conditions=conditions, start=start, **options)
    except InputError as error:
        if "waiting for ever" not in str(error) or QUEUED not in whole.status:
            raise
        reject()


def assert_alike(case: Case, conditions: Conditions, policy: str, dispatch: str = "reorder", start: Snapshot | None = None) -> None:
    if has_queues_joined_by_jobs(case):
        reject()
    options: dict[str, Any] = {"estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    whole = simulate(case.workload, case.cluster, policy, dispatch=dispatch, conditions=conditions, start=start, **options)
    decider = ThroughJson(policy, dispatch=dispatch, conditions=conditions)
    asked = replay_asking(case, conditions, decider, whole, start)
    same = np.array_equal(asked.start, whole.start) and np.array_equal(asked.status, whole.status)
    assume(same or not decider.was_idle)
    np.testing.assert_array_equal(asked.status, whole.status, err_msg=policy)
    np.testing.assert_array_equal(asked.start, whole.start, err_msg=policy)
    np.testing.assert_array_equal(asked.end, whole.end, err_msg=policy)


@tries(80)
@given(
    worlds(), st.sampled_from(("kernel", "attn")), st.integers(0, 3), st.sampled_from(RULES), st.sampled_from(BOUNDS),
    st.sampled_from(PLACEMENTS), st.sampled_from(DISPATCHES),
)  # fmt: skip
def test_models(
    models: Any, world: tuple[Case, Conditions], net: str, seed: int, rule: str, bound: str, placement: str, dispatch: str
) -> None:
    run = models(net, seed)
    assert_alike(*world, f"model:{run}{rule}{bound}{placement}", dispatch if rule else "reorder")


@tries(120)
@given(worlds(), st.sampled_from(EAGER), st.sampled_from(BOUNDS), st.sampled_from(COSTS))
def test_models_that_preempt(models: Any, world: tuple[Case, Conditions], eager: tuple[str, int], bound: str, costs: Preemption) -> None:
    case, conditions = crowded(world[0]), world[1].model_copy(update={"preemption": costs})
    assert_alike(case, conditions, f"model:{models(*eager, stops=3)}{bound}")


@tries(80)
@given(worlds(), st.sampled_from(EAGER), st.sampled_from(BOUNDS), st.sampled_from(COSTS))
def test_models_that_migrate(models: Any, world: tuple[Case, Conditions], eager: tuple[str, int], bound: str, costs: Preemption) -> None:
    """Asked instant by instant, they migrate no job while none waits. All their decisions can be carried out."""
    case, conditions = crowded(world[0]), world[1].model_copy(update={"preemption": costs})
    policy = f"model:{models(*eager, stops=3, moves=True)}{bound}"
    decider = ThroughJson(policy, conditions=conditions)
    options: dict[str, Any] = {"estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    whole = simulate(case.workload, case.cluster, policy, conditions=conditions, **options)
    found = replay_asking(case, conditions, decider, whole)
    if costs.mode == "suspend":  # otherwise only they know which stops were migrations, which save a run's work
        assert_possible(case, found, policy, conditions)
    np.testing.assert_array_equal(found.status, whole.status)


@tries(40)
@given(worlds(), st.sampled_from(("hosts", "joint")), st.integers(0, 2), st.sampled_from(BOUNDS))
def test_models_that_choose_nodes(models: Any, world: tuple[Case, Conditions], net: str, seed: int, bound: str) -> None:
    assert_alike(*world, f"model:{models(net, seed)}{bound}")


@tries(60)
@given(worlds(), st.integers(0, 3), st.sampled_from(("", "+easy")), st.floats(0.0, 1.0))
def test_models_that_start_from_a_snapshot(models: Any, world: tuple[Case, Conditions], seed: int, rule: str, share: float) -> None:
    case, conditions = world
    simulation = Simulation(
        case.workload, case.cluster, "fcfs+easy", estimates=case.known, seed=case.seed, kill_at_limit=case.kill_at_limit,
        conditions=conditions,
    )  # fmt: skip
    simulation.run(until=float(np.quantile(case.workload.submit, share)))
    start = Snapshot.from_json(simulation.snapshot().to_json())
    assert_alike(case, conditions, f"model:{models('kernel', seed)}{rule}", start=start)


def test_a_model_that_commits_cannot_be_asked_again(models: Any) -> None:
    with pytest.raises(InputError, match="commits to jobs"):
        make_decider(f"model:{models('kernel', 0, dispatch='commit')}")
