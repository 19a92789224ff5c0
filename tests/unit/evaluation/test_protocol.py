"""Windows are fixed before any policy runs, lie inside the log, and blocks never overlap."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.protocol import BLOCK_SEEDS, RLSCHEDULER_STARTS, block_jobs, check_disjoint, make_plan, parse_split
from stand_in import busy_days

JOBS = busy_days(3000)


def test_random_windows_lie_inside_the_log_and_follow_the_seed() -> None:
    plan = make_plan("windows", JOBS, num_windows=9, window_jobs=310, seed=4)
    assert all(w.start >= 0 and w.stop <= 3000 and w.stop - w.start == 310 for w in plan.windows)
    assert plan == make_plan("windows", JOBS, num_windows=9, window_jobs=310, seed=4)
    assert plan != make_plan("windows", JOBS, num_windows=9, window_jobs=310, seed=5)
    assert plan.distinct_jobs == 9 * 310
    with pytest.raises(InputError, match="10 windows of 310 jobs do not fit into 3000 jobs without overlapping"):
        make_plan("windows", JOBS, num_windows=10, window_jobs=310)


def test_windows_may_overlap_if_asked() -> None:
    plan = make_plan("windows", JOBS, num_windows=50, window_jobs=2900, seed=4, overlap=True)
    assert all(w.start >= 0 and w.stop <= 3000 and w.stop - w.start == 2900 for w in plan.windows)
    assert len({w.start for w in plan.windows}) == 50
    assert plan.distinct_jobs <= 3000


def test_by_default_there_are_ten_windows_or_as_many_as_fit() -> None:
    assert len(make_plan("windows", JOBS, window_jobs=100).windows) == 10
    assert len(make_plan("windows", JOBS, window_jobs=700).windows) == 4
    assert len(make_plan("windows", JOBS, window_jobs=700, from_model=True).windows) == 4  # cut from one workload, too
    assert len(make_plan("blocks", JOBS, window_jobs=700, from_model=True).windows) == 10  # a workload each


def test_days_count_the_last_part_of_one_replay_from_the_first_job() -> None:
    report = block_jobs(JOBS)["report"]
    plan = make_plan("days", JOBS, shakes=3)
    assert [(w.start, w.stop, w.counted, w.shake) for w in plan.windows] == [(0, 3000, report.start, shake) for shake in range(3)]
    assert plan.distinct_jobs == len(report)
    later = make_plan("days", JOBS, shakes=1, warm_s=3600.0).windows[0]
    assert later.start + later.counted == report.start
    assert JOBS.submit[later.start - 1] < JOBS.submit[report.start] - 3600.0 <= JOBS.submit[later.start]
    with pytest.raises(InputError, match="0 replays leave nothing to measure"):
        make_plan("days", JOBS, shakes=0)


def test_the_unit_is_a_day_or_six_hours_or_nothing() -> None:
    spans = {30 * 86_400.0: 86_400.0, 15 * 86_400.0: 21_600.0, 3600.0: None}
    for span, unit in spans.items():
        log = JOBS.replace(submit=np.linspace(0.0, span, len(JOBS)))
        assert make_plan("days", log).unit_s == unit


def test_days_without_jobs_are_no_units() -> None:
    """The counted part begins on day 65 of 100."""
    busy = np.linspace(0.0, 60 * 86_400.0, 2000)

    def unit(days: list[int]) -> float | None:
        later = [day * 86_400.0 + hour * 3600.0 for day in days for hour in range(0, 24, 2)]
        submit = np.concatenate((busy, later))
        return make_plan("days", JOBS.take(slice(0, len(submit))).replace(submit=submit), split=(0.6, 0.05, 0.35)).unit_s

    assert unit([*range(66, 78), 99]) == 86_400.0
    assert unit([66, 67, 70, 99]) == 21_600.0
    assert unit([66, 99]) is None


def test_splits_are_three_shares() -> None:
    assert parse_split("0.5,0.2,0.3") == (0.5, 0.2, 0.3)
    assert parse_split("0.3333333,0.3333333,0.3333333") == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=1e-12)
    for text in ("0.5,0.5", "0.5,0.2,0.4", "a,b,c", "1.5,-0.2,-0.3", "nan,0.5,0.5", "0.5,0.5,nan", "inf,0.5,0.5"):
        with pytest.raises(InputError, match="three shares that add up to 1"):
            parse_split(text)


def test_a_part_without_a_share_is_refused_where_it_counts() -> None:
    with pytest.raises(InputError, match=r"split '0,0.5,0.5' leaves nothing for train"):
        parse_split("0,0.5,0.5")
    assert make_plan("days", JOBS, split=parse_split("0.5,0,0.5"), shakes=1).windows[0].counted > 0
    with pytest.raises(InputError, match=r"the part report of the log has no jobs with the split 0.5,0.5,0"):
        make_plan("days", JOBS, split=parse_split("0.5,0.5,0"))


def test_a_window_may_be_the_whole_log_but_not_longer() -> None:
    assert make_plan("windows", JOBS, num_windows=1, window_jobs=3000).windows[0].start == 0
    with pytest.raises(InputError, match="a window of 3001 jobs does not fit into the 3000 jobs"):
        make_plan("windows", JOBS, window_jobs=3001)
    with pytest.raises(InputError, match="only 2 different windows"):
        make_plan("windows", JOBS, num_windows=3, window_jobs=2999, overlap=True)


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
        for window in make_plan("blocks", JOBS, num_windows=6, window_jobs=100, block=block).windows:
            assert window.start in ranges[block]
            assert window.stop - 1 in ranges[block]


def test_jobs_from_before_the_log_do_not_shift_the_split() -> None:
    """One job was submitted ten days before the log of five days, and ran until it began."""
    days = 86_400.0 * np.concatenate(([0.0], np.linspace(10.0, 15.0, 1000)))
    log = JOBS.take(slice(0, 1001)).replace(submit=days, runtime=np.full(1001, 60.0), recorded_wait=np.full(1001, 5.0))
    late = log.replace(recorded_wait=np.where(days == 0.0, 10.2 * 86_400.0, 5.0))
    ranges = block_jobs(late)
    assert [len(ranges[name]) for name in ("train", "val", "report")] == [452, 199, 350]  # with the first job of the log, which ends first
    assert len(block_jobs(log)["train"]) == 1  # this job ended at once: the log does begin ten days earlier


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
