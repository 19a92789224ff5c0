"""Windows are fixed before any policy runs, lie inside the log, and blocks never overlap."""

from __future__ import annotations

import pytest

from queuewise.errors import InputError
from queuewise.evaluation.protocol import BLOCK_SEEDS, RLSCHEDULER_STARTS, block_jobs, check_disjoint, make_plan
from stand_in import busy_days

JOBS = busy_days(3000)


def test_random_windows_lie_inside_the_log_and_follow_the_seed() -> None:
    plan = make_plan("windows", JOBS, num_windows=50, window_jobs=2900, seed=4)
    assert all(w.start >= 0 and w.stop <= 3000 and w.stop - w.start == 2900 for w in plan.windows)
    assert plan == make_plan("windows", JOBS, num_windows=50, window_jobs=2900, seed=4)
    assert plan != make_plan("windows", JOBS, num_windows=50, window_jobs=2900, seed=5)
    assert len({w.start for w in plan.windows}) == 50


def test_a_window_may_be_the_whole_log_but_not_longer() -> None:
    assert make_plan("windows", JOBS, num_windows=1, window_jobs=3000).windows[0].start == 0
    with pytest.raises(InputError, match="a window of 3001 jobs does not fit into the 3000 jobs"):
        make_plan("windows", JOBS, window_jobs=3001)
    with pytest.raises(InputError, match="only 2 different windows"):
        make_plan("windows", JOBS, num_windows=3, window_jobs=2999)


def test_explicit_starts() -> None:
    plan = make_plan("windows", JOBS, window_jobs=100, starts=[0, 2900])
    assert [(w.start, w.stop) for w in plan.windows] == [(0, 100), (2900, 3000)]
    for starts, problem in (([2901], "exceeds the log"), ([-1], "exceeds the log"), ([5, 5], "given twice")):
        with pytest.raises(InputError, match=problem):
            make_plan("windows", JOBS, window_jobs=100, starts=starts)
    with pytest.raises(InputError, match="does not support --starts"):
        make_plan("replay", JOBS, starts=[0])


def test_replay_is_the_whole_log() -> None:
    (window,) = make_plan("replay", JOBS).windows
    assert (window.start, window.stop) == (0, 3000)


def test_rlscheduler_rules() -> None:
    plan = make_plan("rlscheduler", busy_days(10_000))
    assert tuple(w.start for w in plan.windows) == RLSCHEDULER_STARTS
    assert {w.stop - w.start for w in plan.windows} == {1024}
    assert (plan.dispatch, plan.estimates) == ("commit", "oracle")
    with pytest.raises(InputError, match="exceeds the log, which has 3000 jobs"):
        make_plan("rlscheduler", JOBS)
    assert [w.start for w in make_plan("rlscheduler", JOBS, starts=[7, 9]).windows] == [7, 9]


def test_blocks_share_no_job_and_windows_stay_in_their_block() -> None:
    ranges = block_jobs(JOBS)
    assert ranges["train"].stop == ranges["val"].start
    assert ranges["val"].stop == ranges["report"].start
    assert ranges["report"].stop == 3000
    for block in ("val", "report"):
        for window in make_plan("blocks", JOBS, num_windows=30, window_jobs=100, block=block).windows:
            assert window.start in ranges[block]
            assert window.stop - 1 in ranges[block]


def test_a_models_blocks_use_seeds_that_training_never_draws() -> None:
    seeds = {b: {w.seed for w in make_plan("blocks", JOBS, num_windows=60, block=b, seed=3, from_model=True).windows} for b in BLOCK_SEEDS}
    assert all(len(drawn) == 60 and drawn <= set(BLOCK_SEEDS[block]) for block, drawn in seeds.items())
    assert not seeds["train"] & seeds["val"] | seeds["val"] & seeds["report"] | seeds["train"] & seeds["report"]
    others = {w.seed for w in make_plan("blocks", JOBS, num_windows=60, block="val", seed=4, from_model=True).windows}
    assert not others & seeds["val"]
    with pytest.raises(InputError, match="exceeds the seeds of block val"):
        make_plan("blocks", JOBS, num_windows=60, block="val", seed=10**6, from_model=True)


def test_overlapping_splits_are_refused() -> None:
    check_disjoint({"train": range(10), "val": range(10, 20)})
    with pytest.raises(InputError, match="jobs 8 to 9 are in both train and val"):
        check_disjoint({"val": range(8, 20), "train": range(10)})


def test_unknown_names_and_empty_demands() -> None:
    with pytest.raises(InputError, match=r"unknown protocol 'window'.*did you mean 'windows'"):
        make_plan("window", JOBS)
    with pytest.raises(InputError, match="leave nothing to measure"):
        make_plan("windows", JOBS, num_windows=0)
    with pytest.raises(InputError, match="has no jobs"):
        make_plan("replay", JOBS.take(slice(0, 0)))
