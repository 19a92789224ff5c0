"""Named policies as deciders: asked instant by instant, through snapshots, they make the schedules of the engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from effort import tries
from queuewise import simulate
from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError
from queuewise.policies.compiled_decider import CompiledDecider
from queuewise.policies.interface import View
from strategies import BACKFILLS, BOUNDS, DISPATCHES, ORDERS, PLACEMENTS, Case, cases, stopping_costs
from views import Retold

SEEN = tuple(name for name in ORDERS if name not in ("fairshare", "fairtree", "multifactor", "qssf", "random"))


class ThroughJson(CompiledDecider):
    """The same, but all that it is given has been JSON."""

    def decide(self, view: View) -> object:  # type: ignore[override]
        return super().decide(Retold(view))  # type: ignore[arg-type]


def assert_same(case: Case, policy: str, dispatch: str, conditions: Conditions) -> None:
    options = {"estimates": case.estimate, "seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    whole = simulate(case.workload, case.cluster, policy, dispatch=dispatch, **options)  # type: ignore[arg-type]
    decider = ThroughJson(policy, dispatch=dispatch, conditions=conditions)
    asked = simulate(case.workload, case.cluster, decider, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(asked.status, whole.status, err_msg=policy)
    np.testing.assert_array_equal(asked.start, whole.start, err_msg=policy)
    np.testing.assert_array_equal(asked.end, whole.end, err_msg=policy)


@pytest.mark.parametrize("backfill", [name for name in BACKFILLS if name != "easy-strict"])  # which decides after every event
@tries(60)
@given(cases(max_jobs=12), st.sampled_from(SEEN), st.sampled_from(PLACEMENTS), st.sampled_from(BOUNDS), st.sampled_from(DISPATCHES))
def test_orders_and_backfills(backfill: str, case: Case, order: str, placement: str, bound: str, dispatch: str) -> None:
    assume(placement not in ("random", "fgd"))  # which go by more than the jobs of the view
    assert_same(case, f"{order}+{backfill}{bound}@{placement}", dispatch, Conditions())


@pytest.mark.parametrize("policy", ["srtf", "priority-preempt", "defrag", "defrag:sjf"])
@tries(60)
@given(case=cases(max_jobs=12), costs=stopping_costs())
def test_policies_that_stop_jobs(policy: str, case: Case, costs: object) -> None:
    assert_same(case, policy, "reorder", Conditions(preemption=costs))  # type: ignore[arg-type]


def test_what_users_have_had_is_not_shown_either(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def mine(job, user):\n    return user.recent_work\n", encoding="utf-8")
    with pytest.raises(InputError, match="past usage, which a view does not show"):
        CompiledDecider(f"{path}:mine+easy")


@pytest.mark.parametrize("policy", ["qssf+easy", "saf:predicted+easy", "fairshare", "las", "tiresias:600"])
def test_what_a_view_does_not_show_is_refused(policy: str) -> None:
    with pytest.raises(InputError, match="view"):
        CompiledDecider(policy)
