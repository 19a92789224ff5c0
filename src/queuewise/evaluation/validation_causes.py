"""Likely causes of differences between a log and its replay, each as a sentence with the figure that speaks for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from queuewise.evaluation.log_replay import LogReplay
from queuewise.workload.jobs import UNKNOWN, Floats

ABOVE_SHARE = 0.01  # of the time in which more is in use than the cluster has; less is due to rounded clocks
ROUNDING = 1.02  # use ÷ size of the cluster that counts as more than the cluster
NEVER_FULL = 0.8  # peak use ÷ size of the cluster, below which it may be too large
HELD_SHARE = 0.05  # of all waiting before jobs were eligible
GAP_S = 3600.0  # time without any running job while a job waits
FITTING_SHARE = 0.1  # of the waiting, by which the log has more of it beside free room than the replay
ONE_USER_SHARE = 0.25  # of the recorded waiting, and twice its share in the replay
FINE_BINS = 20_000
EARLY_S, EARLY_SHARE = 86_400.0, 0.05  # the beginning of a log: a day, at most this share of its span
EARLY_JOBS = 10
NOTICED_S = 60.0


def likely_causes(replay: LogReplay, verdict: str) -> list[str]:
    """Sentences, in the order in which to look into them."""
    return [
        *_size_of_cluster(replay),
        *_held(replay),
        *_downtime(replay),
        *_fitting(replay),
        *_one_user(replay),
        *_empty_beginning(replay),
        *([_other_policy(replay)] if verdict != "close" else []),
    ]


def _size_of_cluster(replay: LogReplay) -> Iterator[str]:
    amount, capacity, resource = replay.amounts()
    start, known = replay.recorded_start, ~np.isnan(replay.recorded_start)
    times = np.concatenate([start[known], (start + replay.workload.runtime)[known]])
    at, which = np.unique(times, return_inverse=True)
    in_use = np.bincount(which, weights=np.concatenate([amount[known], -amount[known]])).cumsum()[:-1]
    above = float(np.diff(at)[in_use > ROUNDING * capacity].sum() / (at[-1] - at[0])) if len(at) > 1 else 0.0
    peak = float(in_use.max(initial=0.0))
    if above > ABOVE_SHARE:
        yield (
            f"the cluster is smaller than that of the log, whose jobs had more than {capacity:,.6g} {resource} in {above:.0%} of the time "
            f"(at most {peak:,.6g})"
        )
    elif peak < NEVER_FULL * capacity < np.inf:
        yield (
            f"the jobs of the log never had more than {peak:,.6g} of {capacity:,.6g} {resource}: "
            "the cluster is larger than that of the log, or jobs are missing in the log"
        )


def _held(replay: LogReplay) -> Iterator[str]:
    rows = replay.compared
    waited = replay.recorded_wait[rows]
    held = np.clip(np.nan_to_num(replay.recorded.eligible[rows] - replay.workload.submit[rows]), 0.0, waited)
    if held.sum() > HELD_SHARE * waited.sum() and held.mean() > NOTICED_S:
        yield (
            f"{held.sum() / waited.sum():.0%} of the recorded waiting was before jobs were eligible: "
            "dependencies, begin times, holds of users or limits, which the replay does not have"
        )
    if len(replay.workload.dependencies):
        yield f"the log names {len(replay.workload.dependencies):,} dependencies between jobs, which the replay ignores"


def _downtime(replay: LogReplay) -> Iterator[str]:
    gaps = idle_gaps(replay)
    if len(gaps):
        times = "once" if len(gaps) == 1 else f"{len(gaps):,} times"
        yield f"{times} no job ran for an hour or more although jobs were waiting ({gaps.sum() / 3600:,.0f} h in all): downtime"


def idle_gaps(replay: LogReplay) -> Floats:
    """Lengths of the recorded periods of at least GAP_S in which no job ran and some job waited from their begin to their end."""
    known = ~np.isnan(replay.recorded_start)
    order = np.argsort(replay.recorded_start[known], kind="stable")
    start, submit, run = (x[known][order] for x in (replay.recorded_start, replay.workload.submit, replay.workload.runtime))
    begin, end = np.maximum.accumulate(start + run)[:-1], start[1:]
    # Nothing starts within a gap, so what was submitted by its begin and has not started before its end waits all the time.
    waiting = np.searchsorted(np.sort(submit), begin, side="right") > np.searchsorted(start, end, side="left")
    gaps: Floats = (end - begin)[(end - begin >= GAP_S) & waiting & (begin >= replay.begin)]
    return gaps


def _fitting(replay: LogReplay) -> Iterator[str]:
    both = [fitting_wait(replay, start) for start in (replay.recorded_start, replay.replayed_start)]
    (beside, waited), (replayed_beside, _) = both
    if beside - replayed_beside > FITTING_SHARE * waited:
        log, again = (f"{part / 3600:,.0f} of {whole / 3600:,.0f} h" for part, whole in both)
        yield (
            f"in the log jobs waited {log} while as many {replay.amounts()[2]} were free as they ask for, in the replay {again}: "
            "limits of users or partitions, reservations, nodes that were down, or jobs that are missing in the log"
        )


def fitting_wait(replay: LogReplay, start: Floats) -> tuple[float, float]:
    """Waiting (job-seconds) beside as much free room as the job asks for, and all waiting, if jobs start at `start` [J].

    Room is the mean of a bin. The share is too high for small jobs, for which a moment of room is enough, so compare two schedules.
    """
    amount, capacity, _ = replay.amounts()
    edges = np.linspace(replay.begin, replay.end, FINE_BINS + 1)
    free = capacity - replay.in_use(start, edges)
    rows = replay.compared
    begin, end = (np.clip(times[rows], edges[0], edges[-1]) for times in (replay.workload.submit, start))
    beside = 0.0
    sizes, which = np.unique(amount[rows], return_inverse=True)
    for index, size in enumerate(sizes.tolist()):
        covered = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (free >= size))])
        mine = which == index
        beside += float((np.interp(end[mine], edges, covered) - np.interp(begin[mine], edges, covered)).sum())
    return beside, float((end - begin).sum())


def _one_user(replay: LogReplay) -> Iterator[str]:
    rows = replay.compared & (replay.workload.user != UNKNOWN)
    user = replay.workload.user[rows]
    shares = []
    for waits in (replay.recorded_wait[rows], replay.replayed_wait[rows]):
        waited = np.bincount(user, weights=waits, minlength=len(replay.workload.users))
        shares.append(waited / max(float(waited.sum()), 1.0))
    recorded, replayed = shares
    if len(np.unique(user)) < 2:
        return
    most = int(recorded.argmax())
    if recorded[most] > ONE_USER_SHARE and recorded[most] > 2 * replayed[most]:
        yield (
            f"user {replay.workload.users[most]} has {recorded[most]:.0%} of the waiting in the log "
            f"and {replayed[most]:.0%} in the replay: perhaps a limit of that user"
        )


def _empty_beginning(replay: LogReplay) -> Iterator[str]:
    until = replay.begin + min(EARLY_S, EARLY_SHARE * (replay.end - replay.begin))
    early = replay.compared & (replay.workload.submit <= until)
    if replay.at_begin.any() or early.sum() < EARLY_JOBS:
        return
    recorded, replayed = replay.recorded_wait[early].mean(), replay.replayed_wait[early].mean()
    if recorded > 2 * replayed + NOTICED_S:
        yield (
            f"the replay starts with an empty cluster: the first {int(early.sum()):,} jobs waited {recorded:,.0f} s in the log and "
            f"{replayed:,.0f} s in the replay, so others ran or waited when the log begins"
        )


def _other_policy(replay: LogReplay) -> str:
    return f"the scheduler of the log may have other rules than {replay.schedule.policy}: other priorities, limits or backfill"
