"""Own functions with parameters that hold jobs back: the engine and the reference, which calls the same functions uncompiled, agree."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from reference.own import Own
from strategies import BACKFILLS, BOUNDS, DISPATCHES, USERS, WITH_SECOND_ORDER, Case, cases, column

FUNCTIONS = """
import math

PARAMS = [3.0, 1.0]
STATE_SIZE = 1

def patient(job, params):
    return job.estimate * params[1]

def patient_hold(job, now, params):
    return max(params[0] - (now - job.submit), 0.0) if job.width > 1.0 else 0.0

def stubborn(job):
    return job.width

def stubborn_hold(job):
    return math.inf

def spiteful(job, now, user, params):
    return user.running_jobs * params[1] + user.running_width

def spiteful_hold(job, user, queue, cluster, params, state):
    state[0] += 1.0
    if user.running_width > 1.0 and queue.length > 1:
        return math.inf
    return params[0] if cluster.running_jobs > 2.0 and job.index % 3 == 0 else 0.0

def hasty(job):
    return job.submit - job.width

def hasty_hold(job, now):
    if job.index % 2:
        return 0.0009  # too short to hold anybody
    return 0.3 if now - job.submit < 1.0 else 0.0

def heavy(job, user):
    return round(user.recent_work, 6) + job.submit
"""
NAMES = ("patient", "stubborn", "spiteful", "hasty", "heavy")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(FUNCTIONS, encoding="utf-8")
    return path


def own(path: Path, name: str, params: list[float]) -> Own:
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hold: Callable[..., Any] | None = getattr(module, f"{name}_hold", None)
    return Own(name, getattr(module, name), hold, params, [0.0])


@st.composite
def cases_with_users(draw: st.DrawFn) -> Case:
    case = draw(cases())
    user = column(draw, len(case.workload), (-1, 0, 0, 1, 2), np.int32)
    return dataclasses.replace(case, workload=case.workload.replace(user=user, users=USERS))


@pytest.mark.parametrize("backfill", BACKFILLS)
@tries(120)
@given(
    cases_with_users(), st.sampled_from(NAMES), st.sampled_from(("", "/2", ":fcfs")), st.sampled_from(BOUNDS), st.sampled_from(DISPATCHES)
)
def test_held_jobs(mine: Path, backfill: str, case: Case, name: str, more: str, bound: str, dispatch: str) -> None:
    params = [2.0, 0.5]
    suffix = f"+{backfill}{more if backfill in WITH_SECOND_ORDER else ''}{bound}"
    given = params if name in ("patient", "spiteful") else None
    assert_same_schedule(case, f"{mine}:{name}{suffix}", dispatch, twin=name + suffix, own=own(mine, name, params), params=given)
