"""The engine against the schedules that were worked out by hand."""

from __future__ import annotations

import itertools

import pytest

from agreement import stays
from hand_cases import DONE, HAND_CASES, INF, HandCase
from partition_cases import PARTITION_CASES
from queuewise.policies import simulate
from queuewise.workload.estimates import Estimates


@pytest.mark.parametrize("case", [*HAND_CASES, *PARTITION_CASES], ids=lambda case: case.name)
def test_by_hand(case: HandCase) -> None:
    known = Estimates(case.known, guessed=case.guessed)
    schedule = simulate(case.workload, case.cluster, case.policy, estimates=known, conditions=case.conditions)
    pieces = sorted((s.job, s.start, s.end, s.node) for s in stays(schedule))
    runs = [(*run, tuple(node for *_, node in own)) for run, own in itertools.groupby(pieces, key=lambda piece: piece[:3])]
    assert runs == case.runs
    assert schedule.status.tolist() == case.expected_status
    first = [min((start for job, start, _, _ in runs if job == j), default=INF) for j in range(len(case.workload))]
    assert schedule.start.tolist() == list(case.start or first)
    last = [max((end for job, _, end, _ in runs if job == j), default=INF) for j in range(len(case.workload))]
    assert schedule.end.tolist() == [end if status == DONE else INF for end, status in zip(last, case.expected_status, strict=True)]
