"""No policy sees the future: runtimes of jobs that have not ended by some time change no decision up to it. Over all registries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import effort
from model_setup import make_model
from no_future import ESTIMATES, leak, trial
from queuewise.cluster import load_cluster
from queuewise.envs.features import VIEWS
from queuewise.policies import parse_policy
from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.deciding import ReplayView
from queuewise.policies.interface import ShownState, View
from queuewise.policies.known import Jobs, OracleJobs
from queuewise.policies.ordering import ORDERS, OrderRule
from queuewise.policies.placing import PLACEMENTS, SOLVED_PLACEMENTS
from queuewise.policies.planner_names import PLANNERS
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.workload import Workload, predictor
from queuewise.workload.jobs import Floats

SEEDS = range(12) if effort.thorough else range(2)
PLANNED = (*PLANNERS.values(), "plan:wfp3+greedy@tier", "milp:4")  # slow: one seed without --slow
NAMES = (
    *(f"{order}+easy" for order in ORDERS),
    *(f"sjf+{backfill}" for backfill in BACKFILLS),
    *(name for name, rule in PREEMPTIVE.items() if not rule.oracle),
    *(f"sjf+greedy@{placement}" for placement in (*PLACEMENTS, *SOLVED_PLACEMENTS, "milp:room-fgd:4")),
    *(f"saf+{backfill}~10m" for backfill in BACKFILLS),
    *(f"{name}~10m" for name, rule in PREEMPTIVE.items() if not rule.oracle),
    "saf:predicted+easy:sjf:predicted",
    *PLANNED,
)
ORACLES = [name for name, rule in PREEMPTIVE.items() if rule.oracle]
NETS = ("kernel", "hosts", "joint")  # one for each problem
STOPPING: list[tuple[str, dict[str, Any]]] = [(net, {"task": {"window": 8, "stops": 4, "moves": True}}) for net in ("kernel", "attn")]
PUBLISHED: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"env": "host" if view == "lsf" else "job", "task": {"window": 8, "view": view}}) for view in VIEWS if view != "tokens"
]
OWN = """
from queuewise.policies.interface import Preempt, Start

def score(job, now, queue, cluster):
    return job.predicted * job.width - (now - job.submit) + queue.work / (1.0 + cluster.free_gpus) + job.estimate

PARAMS = [0.5]

def learned(job, now, user, params):
    history = job.predicted + job.predicted_low + job.predicted_high + job.user_mean + job.user_spread + min(job.user_gap, 1e6)
    return history * params[0] + user.recent_work + user.running_width - now

def learned_hold(job, now, user, params):
    return 60.0 if user.running_jobs > 1.0 and job.user_mean > job.predicted else 0.0

def where(node, job):
    return node.free_gpus * node.speed - job.gpus

class Own:
    def decide(self, view):
        for job in sorted(view.queue, key=lambda job: (job.estimate, job.index)):
            if view.fits(job):
                yield Start(job)
            elif view.running:
                longest = max(view.running, key=lambda run: run.expected_end)
                if longest.start + 60.0 < view.now and longest.expected_end > view.now + 4.0 * job.estimate:
                    yield Preempt(longest.job)
                    if view.fits(job):
                        yield Start(job)
        if not view.running and view.queue and view.fits(view.queue[0]):
            yield Start(view.queue[0])
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


def assert_blind(policy: str) -> None:
    parsed = parse_policy(policy)
    uses_predictions = bool(parsed.history) or "predicted" in parsed.own_estimates
    for seed in SEEDS if effort.thorough or policy not in PLANNED else SEEDS[:1]:
        for estimates in ESTIMATES:
            assert leak(policy, trial(seed, estimates), uses_predictions=uses_predictions) == ""


@pytest.mark.parametrize("policy", NAMES)
def test_registered_policies_do_not_see_the_future(policy: str) -> None:
    assert_blind(policy)


@pytest.mark.parametrize("policy", ["{own}:score+easy", "{own}:learned+easy", "fcfs+easy@{own}:where", "{own}:Own"])
def test_policies_of_a_user_do_not_see_the_future(policy: str, own: str) -> None:
    assert_blind(policy.format(own=own))


@pytest.mark.parametrize(("net", "changes"), [*((net, {}) for net in NETS), *STOPPING, *PUBLISHED])
def test_trained_models_do_not_see_the_future(net: str, changes: dict[str, Any], tmp_path: Path) -> None:
    make_model(tmp_path, net, **changes)
    cluster = load_cluster("2x4:V100-16")
    for seed in SEEDS:
        for estimates in ESTIMATES:
            assert leak(f"model:{tmp_path}", trial(seed, estimates, cluster)) == ""


# --- the same test finds what sees the future


@pytest.mark.parametrize("policy", ORACLES)
def test_oracles_are_caught(policy: str) -> None:
    assert any(leak(policy, trial(seed, "requested")) for seed in range(4))


@pytest.mark.parametrize("estimates", ESTIMATES)
def test_an_order_with_a_back_door_is_caught(estimates: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order asks for nothing but its columns; somebody else keeps the runtimes where it finds them."""
    found: list[Floats] = []

    def of(workload: Workload, estimate: Floats, **others: object) -> Jobs:
        found[:] = [workload.runtime]
        return honest(workload, estimate, **others)

    honest = Jobs.of
    monkeypatch.setattr(Jobs, "of", of)
    monkeypatch.setitem(ORDERS, "planted", OrderRule("runtime", "planted", lambda jobs: found[0]))
    assert any(leak("planted+easy", trial(seed, estimates)) for seed in range(2))


def test_a_predictor_that_learns_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtimes become known with the submission."""
    monkeypatch.setattr(predictor, "known_at", lambda workload: workload.submit)
    assert any(leak("sjf+easy", trial(seed, "predicted")) for seed in range(2))
    assert any(leak("qssf+easy", trial(seed, "requested"), uses_predictions=True) for seed in range(2))


def test_estimates_that_change_with_runtimes_are_caught() -> None:
    assert any(leak("sjf+easy", trial(seed, "oracle")) for seed in range(2))


# --- what policies are given


def test_columns_hold_no_runtime_and_no_recorded_wait() -> None:
    workload = trial(0, "requested").workload
    secrets = [workload.runtime, workload.recorded_wait]
    jobs = Jobs.of(workload, np.zeros(len(workload)))
    for value in vars(jobs).values():
        assert not isinstance(value, Workload)
        assert not any(isinstance(value, np.ndarray) and np.array_equal(value, secret) for secret in secrets)
    assert OracleJobs.of(workload, np.zeros(len(workload))).runtime is workload.runtime
    assert all(parse_policy(name).sees is Jobs for name in NAMES)


def test_a_class_is_given_its_view_and_nothing_else() -> None:
    def public(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert public(ReplayView) == public(View) | public(ShownState)
