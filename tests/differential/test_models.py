"""Models under all conditions: the reference, driven by the same decisions, makes the same schedule.

The models have random weights, which decide as well as trained ones for this purpose, or none, which leave the order of the
window as it is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from agreement import assert_equal, assert_same_schedule, replay
from effort import tries
from model_setup import EAGER, make_model
from queuewise.agents.checkpoint import write_model
from queuewise.agents.model_policies import load_policy
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Outage, Power, Preemption
from queuewise.envs.circumstances import Circumstances, Ordering
from queuewise.envs.env_memory import make_template
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.stepping import RUNS_ON
from queuewise.policies.model_file import find_model, read_card
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.models import generate
from reference.scripted import GIVEN, GivenOrders, Moment, Move, Script, Start, Stop
from reference.state import Piece
from strategies import BOUNDS, DISPATCHES, WITHOUT_LOOPS, Case, crowded, worlds

quick = tries(100)
PLACEMENTS = ("", "@first", "@spread", "@pack:0", "@tier", "@fgd", "@fastest")
COSTS = (Preemption(), Preemption(quantum_s=3.0, restart_s=0.5, transfer_s=1.0), Preemption(mode="kill", checkpoint_every_s=2.0))
WINDOW_ORDERS = ("fcfs", "sjf", "largest", "saf", "priority")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders of models, each made once."""
    home = tmp_path_factory.mktemp("models")

    @cache
    def find(net: str, seed: int = 0, decision: str = "likely", *, blank: bool = False, **task: Any) -> Path:
        run = home / "-".join(map(str, (net, seed, decision, blank, *task.items()))).replace("'", "").replace(" ", "")
        made, _ = make_model(run, net, seed=seed, decision=decision, task={"window": 4} | task)
        if blank:
            with torch.no_grad():
                for parameter in made.network.parameters():
                    parameter.zero_()
            write_model(run / "best.safetensors", made, read_card(run / "best.safetensors"))  # type: ignore[arg-type]
        return run

    return find


def starts_of(schedule: Schedule, *, with_places: bool) -> list[Start]:
    """The starts of a schedule in the order in which they happened, with the places that the network chose."""
    starts: list[Start] = []
    columns = (schedule.piece_job, schedule.piece_start, schedule.piece_node, schedule.piece_tasks, schedule.piece_gpus)
    for job, time, node, tasks, gpus in zip(*(column.tolist() for column in columns), strict=True):
        if not starts or (starts[-1].job, starts[-1].time) != (job, time):
            starts.append(Start(time, job, []))
        pieces = starts[-1].pieces
        assert pieces is not None
        pieces.append(Piece(node, tasks, tuple(g for g in range(64) if gpus >> g & 1)))
    return starts if with_places else [dataclasses.replace(start, pieces=None) for start in starts]


def lasting(case: Case) -> Case:
    """The same without jobs of length zero."""
    w = case.workload
    return dataclasses.replace(case, workload=w.replace(runtime=np.maximum(w.runtime, 0.1), requested=np.maximum(w.requested, 0.1)))


def assert_driven_alike(
    case: Case, conditions: Conditions, policy: str, twin: str, *, places: bool = False, dispatch: str = "reorder"
) -> None:
    """The reference, told which job starts when, makes the schedule of the model."""
    case = lasting(case)
    found = replay(case, policy, conditions, dispatch)
    options: dict[str, Any] = {"estimate": case.estimate, "guessed": case.guessed, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    script = Script(starts_of(found, with_places=places))
    expected = reference.simulate(case.workload, case.cluster, twin, conditions=conditions, script=script, **options)
    assert not script.left
    assert_equal(found, expected, f"{policy} {conditions}")


@quick
@given(
    worlds(), st.sampled_from(("kernel", "attn")), st.integers(0, 3), st.sampled_from(("likely", "best")), st.booleans(),
    st.sampled_from(BOUNDS), st.sampled_from(PLACEMENTS),
)  # fmt: skip
def test_as_trained(
    models: Any, world: tuple[Case, Conditions], net: str, seed: int, decision: str, skip: bool, bound: str, placement: str
) -> None:
    run = models(net, seed, decision, skip_forced=skip)
    assert_driven_alike(*world, f"model:{run}{bound}{placement}", f"fcfs{bound}{placement}")


def recorded_decisions(case: Case, conditions: Conditions, run: Path, bound: float) -> tuple[list[Start | Stop | Move], Schedule]:
    """Play decision by decision; what was started, stopped and moved, in this order."""
    setup, model = load_policy(find_model(run), case.workload, case.cluster)
    circumstances = Circumstances(conditions, case.kill_at_limit, bound, seed=case.seed, guessed=case.guessed)
    episode = lay_out_episode(case.workload, setup.cluster, setup.settings, setup.layout, case.estimate, circumstances)
    batch, window, slots = setup.batch(1, threads=1), setup.layout.window, setup.layout.stops
    batch.begin([0], [make_template(episode)])
    steps: list[tuple[Stop | Move | None, int]] = [(None, int(batch.state(0).count.starts))]  # and starts until its end
    while batch.outcome[0] == RUNS_ON:
        now, running = float(batch.state(0).clock.now), batch.running_jobs(0)
        action = int(model.act(batch.observations, batch.mask)[0]) - window
        batch.step(np.array([action + window]))
        chosen = None
        if 0 <= action < batch.num_actions - 1 - window:
            chosen = (Stop if action < slots else Move)(now, int(running[action % slots]))
        steps.append((chosen, int(batch.state(0).count.starts)))
    schedule = batch.schedule(0)
    batch.close()
    starts, decisions = starts_of(schedule, with_places=False), list[Start | Stop | Move]()
    at = 0
    for chosen, until in steps:
        decisions += [chosen] if chosen is not None else []
        decisions += starts[at + isinstance(chosen, Move) : until]  # a move begins with a start of its own
        at = until
    return decisions, schedule


@tries(240)
@given(
    worlds(), st.sampled_from(EAGER), st.booleans(), st.booleans(), st.sampled_from(("", "~2s", "~15s")), st.sampled_from(COSTS),
)  # fmt: skip
def test_models_that_preempt_and_migrate(
    models: Any, world: tuple[Case, Conditions], eager: tuple[str, int], moves: bool, skip: bool, bound: str, costs: Preemption
) -> None:
    (net, seed), case, conditions = eager, crowded(world[0]), world[1].model_copy(update={"preemption": costs})
    run = models(net, seed, stops=3, moves=moves, most_stops=20, skip_forced=skip)
    decisions, played = recorded_decisions(case, conditions, run, float(bound[1:-1] or "inf"))
    found = replay(case, f"model:{run}{bound}", conditions)
    np.testing.assert_array_equal(found.piece_start, played.piece_start)
    options: dict[str, Any] = {"estimate": case.estimate, "guessed": case.guessed, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    script = Script(decisions)
    expected = reference.simulate(case.workload, case.cluster, f"fcfs{bound}", conditions=conditions, script=script, **options)
    assert not script.left
    assert_equal(found, expected, f"{net} {seed} {moves} {bound} {conditions}")


@quick
@given(worlds(), st.integers(0, 3), st.sampled_from(BOUNDS), st.sampled_from(("none", "greedy", "easy")))
def test_as_trained_to_commit(models: Any, world: tuple[Case, Conditions], seed: int, bound: str, rule: str) -> None:
    run = models("kernel", seed, dispatch="commit", backfill=rule)
    assert_driven_alike(*world, f"model:{run}{bound}", "fcfs", dispatch="commit")


@quick
@given(
    worlds(), st.sampled_from(("kernel", "attn")), st.integers(0, 3), st.sampled_from(("likely", "best")), st.booleans(),
    st.sampled_from(BOUNDS), st.sampled_from(("easy", "easy:sjf", "greedy:wfp3")),
)  # fmt: skip
def test_models_that_name_the_head(
    models: Any, world: tuple[Case, Conditions], net: str, seed: int, decision: str, skip: bool, bound: str, fill: str
) -> None:
    """The replay is the episode, decision by decision, and the reference makes the same of its starts."""
    case, conditions = lasting(world[0]), world[1]
    run = models(net, seed, decision, dispatch="head", backfill=fill, skip_forced=skip)
    _, played = recorded_decisions(case, conditions, run, float(bound[1:-1] or "inf"))
    found = replay(case, f"model:{run}{bound}", conditions)
    np.testing.assert_array_equal(found.piece_start, played.piece_start)
    np.testing.assert_array_equal(found.piece_node, played.piece_node)
    assert_driven_alike(case, conditions, f"model:{run}{bound}", f"fcfs{bound}")


@quick
@given(worlds(), st.sampled_from(("hosts", "joint")), st.integers(0, 2), st.booleans(), st.sampled_from(BOUNDS))
def test_models_that_choose_nodes(models: Any, world: tuple[Case, Conditions], net: str, seed: int, skip: bool, bound: str) -> None:
    assert_driven_alike(*world, f"model:{models(net, seed, skip_forced=skip)}{bound}", f"fcfs{bound}", places=True)


@quick
@given(
    worlds(), st.sampled_from(WINDOW_ORDERS), st.sampled_from(WITHOUT_LOOPS), st.sampled_from(("", "", "/2")), st.sampled_from(BOUNDS),
    st.sampled_from(PLACEMENTS), st.sampled_from(DISPATCHES),
)  # fmt: skip
def test_a_network_without_a_preference_leaves_the_order_of_the_window(
    models: Any, world: tuple[Case, Conditions], order: str, rule: str, depth: str, bound: str, placement: str, dispatch: str
) -> None:
    """However many jobs the window shows."""
    case, conditions = world
    rest = f"+{rule}{'' if conditions.quotas or rule == 'none' else depth}{bound}{placement}"
    run = models("kernel", decision="best", blank=True, window_order=order)
    assert_same_schedule(case, f"model:{run}{rest}", dispatch, conditions, twin=f"{order}{rest}")


def recorded_orders(case: Case, conditions: Conditions, run: Path, ordering: Ordering, bound: float) -> tuple[dict[Moment, Any], Schedule]:
    """Play instant by instant; at each decision, the order that the scores for the observation give."""
    setup, model = load_policy(find_model(run), case.workload, case.cluster)
    circumstances = Circumstances(conditions, case.kill_at_limit, bound, "", ordering, case.seed, guessed=case.guessed)
    episode = lay_out_episode(case.workload, setup.cluster, setup.settings, setup.layout, case.estimate, circumstances)
    batch = setup.batch(1, threads=1)
    batch.begin([0], [make_template(episode)])
    orders: dict[Moment, Any] = {}
    while batch.outcome[0] == RUNS_ON:
        state = batch.episode_state(0)
        jobs, running = state.waiting[: state.count.waiting].tolist(), state.running[: state.count.on_machine].tolist()
        moment = float(batch.state(0).clock.now), frozenset(jobs), frozenset(running)
        batch.mask[:] = False
        batch.play(model, 1)
        if not batch.mask.any():
            continue  # nothing could start
        shown = int(batch.mask[0, :-1].sum())
        waits = int(model.act(batch.observations, batch.mask)[0]) == batch.num_actions - 1
        scores = model.scores(batch.observations, batch.mask)[0][0, :shown, 0]
        by_score = [jobs[q] for q in np.argsort(-scores, kind="stable")]
        orders[moment] = None if waits else by_score + jobs[shown:]
    schedule = batch.schedule(0)
    batch.close()
    return orders, schedule


@quick
@given(
    worlds(), st.sampled_from(("kernel", "attn")), st.integers(0, 3), st.sampled_from(("likely", "best")),
    st.sampled_from([rule for rule in WITHOUT_LOOPS if rule != "easy-strict"]), st.sampled_from(("", "", "~2s")),
)  # fmt: skip
def test_a_network_as_the_order(
    models: Any, world: tuple[Case, Conditions], net: str, seed: int, decision: str, rule: str, bound: str
) -> None:
    case, conditions = world
    run = models(net, seed, decision)
    orders, played = recorded_orders(case, conditions, run, Ordering(rule), float(bound[1:-1] or "inf"))
    found = replay(case, f"model:{run}+{rule}{bound}", conditions)
    np.testing.assert_array_equal(found.start, played.start)
    options: dict[str, Any] = {"estimate": case.estimate, "guessed": case.guessed, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    given_orders = GivenOrders(orders)
    name = f"{GIVEN}+{rule}{bound}"
    expected = reference.simulate(case.workload, case.cluster, name, conditions=conditions, script=given_orders, **options)
    assert_equal(found, expected, f"{net} {seed} {rule}{bound} {conditions}")


PLAIN = """
import json, sys
import numpy as np
from test_models import WORKLOAD, CLUSTER, WORLDS
from queuewise import simulate

told = {}
for name in json.loads(sys.argv[1]):
    for number, conditions in enumerate(WORLDS):
        found = simulate(WORKLOAD, CLUSTER, name, estimates="noisy:0.5", conditions=conditions, kill_at_limit=True)
        told[f"{name} {number}"] = [found.start.tolist(), found.end.tolist(), found.piece_gpus.tolist()]
print(json.dumps(told))
"""
WORKLOAD, CLUSTER = generate("bursty", 20, seed=3, max_gpus=4), load_cluster("2x4:V100-16")
FIRST = float(WORKLOAD.submit[0])
WORLDS = (
    Conditions(),
    Conditions(outages=(Outage(node=0, start=FIRST + 100, end=FIRST + 4000), Outage(node=1, start=FIRST + 5000, end=FIRST + 9000))),
    Conditions(power=Power(sleep_after_s=10, wake_s=30, cap_watts=float(CLUSTER.idle_draw.sum()) + 700)),
)


def test_compiled_and_plain_play_are_one(models: Any) -> None:
    runs = {net: models(net, window=8) for net in ("kernel", "hosts", "joint")}
    runs |= {"stops": models("attn", window=8, stops=3, moves=True), "view": models("mlp", window=8, view="rltune")}
    runs |= {"head": models("kernel", window=8, dispatch="head", backfill="easy:aged")}
    names = [f"model:{run}" for run in runs.values()] + [f"model:{runs[name]}~1h" for name in ("kernel", "stops", "head")]
    names += [f"model:{runs['kernel']}+{rest}" for rest in ("easy", "conservative~1h", "greedy/3@spread")]
    told = []
    for disabled in ("0", "1"):
        environment = os.environ | {"NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        command = [sys.executable, "-W", "ignore", "-c", PLAIN, json.dumps(names)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert len(told[0]) == len(names) * len(WORLDS)
    assert told[0] == told[1]
