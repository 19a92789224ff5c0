"""The reference simulator against schedules with preemption, outages, sleeping nodes and a power cap that were worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from hand_cases import DONE, HAND_CASES, INF, HandCase
from partition_cases import PARTITION_CASES
from reference.preemption import gittins_index


@pytest.mark.parametrize("case", [*HAND_CASES, *PARTITION_CASES], ids=lambda case: case.name)
def test_by_hand(case: HandCase) -> None:
    known = {"estimate": case.known, "guessed": case.guessed}
    result = reference.simulate(case.workload, case.cluster, case.policy, conditions=case.conditions, **known)
    runs = [(job, start, end, tuple(node for node, _, _ in pieces)) for job, start, end, pieces in result.runs]
    assert runs == case.runs
    assert result.status.tolist() == case.expected_status
    runs_of = [[run for run in runs if run[0] == j] for j in range(len(case.workload))]
    ended_well = [status == DONE for status in case.expected_status]
    assert result.preemptions.tolist() == [len(own) - well for own, well in zip(runs_of, ended_well, strict=True)]
    assert result.start.tolist() == list(case.start or [own[0][1] if own else INF for own in runs_of])
    assert result.end.tolist() == [own[-1][2] if well else INF for own, well in zip(runs_of, ended_well, strict=True)]


def test_gittins_index_by_hand() -> None:
    # At 0: one job for 1 + 1 + 1, two for 1 + 1 + 1, three for 1 + 1 + 10. At 1 only the long one is left, 9 to go.
    assert gittins_index([10.0, 1.0, 1.0], 0.0) == 2 / 3
    assert gittins_index([10.0, 1.0, 1.0], 1.0) == 1 / 9
    assert gittins_index([10.0, 1.0, 1.0], 10.0) == 0
    assert gittins_index([], 0.0) == 0


@given(st.lists(st.integers(1, 12), max_size=8), st.integers(0, 12))
def test_gittins_index_is_the_greatest_ratio(services: list[int], attained: int) -> None:
    """Against the definition, over thetas on a grid finer than the services."""
    ratios = [0.0]
    for theta in (attained + step / 4 for step in range(1, 60)):
        spent = sum(min(s - attained, theta - attained) for s in services if s > attained)
        if spent:
            ratios.append(sum(attained < s <= theta for s in services) / spent)
    assert gittins_index([float(s) for s in services], float(attained)) == pytest.approx(max(ratios), rel=1e-12)
