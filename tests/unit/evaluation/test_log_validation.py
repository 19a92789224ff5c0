"""Recorded beside replayed waits on logs that are small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import queuewise
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.evaluation.log_replay import LogReplay, default_policy, replay_log
from queuewise.evaluation.log_validation import Validation, Waits, compare_waits, judge_replay, rank_correlation
from queuewise.evaluation.validation_causes import fitting_wait, idle_gaps, likely_causes
from queuewise.workload import Loaded, ReadOptions, load_workload
from queuewise.workload.jobs import Workload
from queuewise.workload.transform import log_begin

HOUR = 3600
Row = tuple[int, int, int, int]  # submit, wait, run, processors

# On 4 processors first come, first served, this is what happens: the third job waits 90 s for the first two.
LIKE_FCFS: list[Row] = [(0, 0, 100, 2), (0, 0, 100, 2), (10, 90, 50, 4), (500, 0, 10, 1)]


def loaded(tmp_path: Path, rows: list[Row], users: list[int] | None = None, header: str = "") -> Loaded:
    users = users or [1] * len(rows)
    lines = [
        f"{n} {s} {w} {r} {p} -1 -1 {p} {r} -1 1 {u} 7 -1 -1 -1 -1 -1" for n, ((s, w, r, p), u) in enumerate(zip(rows, users, strict=True))
    ]
    path = tmp_path / "log.swf"
    path.write_text(header + "\n".join(lines), encoding="utf-8")
    return load_workload(path, options=ReadOptions(recorded=True, partitions=True))


def replayed(tmp_path: Path, rows: list[Row], cluster: str, users: list[int] | None = None) -> LogReplay:
    return replay_log(loaded(tmp_path, rows, users), load_cluster(cluster), "fcfs+easy")


def causes(replay: LogReplay) -> str:
    return "\n".join(likely_causes(replay, "off"))


def test_a_replay_that_is_the_log_is_close(tmp_path: Path) -> None:
    found = compare_waits(replayed(tmp_path, LIKE_FCFS, "flat:4"))
    assert found.as_json() == {
        "recorded": {"mean": 22.5, "p50": 0.0, "p90": pytest.approx(63.0), "p99": pytest.approx(87.3)},
        "replayed": {"mean": 22.5, "p50": 0.0, "p90": pytest.approx(63.0), "p99": pytest.approx(87.3)},
        "rank_correlation": pytest.approx(1.0),
        "utilisation_error": 0.0,
        "verdict": "close",
        "why": ["mean and ranks of the waits and the use over time are within the limits of close"],
    }
    assert (found.jobs, found.at_begin, found.rejected, found.resource) == (4, 0, 0, "cores")
    assert repr(found).endswith(": close, mean wait 22 s recorded, 22 s replayed)")
    assert np.mean(found.recorded_use) == pytest.approx((2 * 100 * 2 + 50 * 4) / (4 * 500))  # up to the last submission


def test_parts_of_the_jobs(tmp_path: Path) -> None:
    found = compare_waits(replayed(tmp_path, LIKE_FCFS, "flat:4"))
    assert [(part.key, part.jobs, part.recorded.mean) for part in found.by["size"]] == [("1", 1, 0.0), ("2", 2, 0.0), ("3–4", 1, 90.0)]
    assert [(part.key, part.jobs) for part in found.by["account"]] == [("7", 4)]
    assert [(part.key, part.jobs) for part in found.by["hour of day"]] == [("0", 4)]
    assert [(part.key, part.jobs) for part in found.by["time"]] == [("0", 4)]
    assert [(part.key, part.jobs) for part in found.by["partition"]] == [("unknown", 4)]


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert rank_correlation(np.array([0.0, 0, 1]), np.array([5.0, 6, 7])) == pytest.approx(1.5 / np.sqrt(1.5 * 2))
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([9.0, 8, 7])) == pytest.approx(-1.0)
    assert rank_correlation(np.array([1.0, 2, 3]), np.zeros(3)) is None


@pytest.mark.parametrize(
    ("replayed_mean", "rank", "error", "rejected", "verdict"),
    [
        (1000.0, 1.0, 0.0, 0, "close"),
        (1250.0, 0.7, 0.05, 0, "close"),
        (800.0, 0.7, 0.05, 0, "close"),
        (1300.0, 1.0, 0.0, 0, "usable"),
        (1000.0, 0.69, 0.0, 0, "usable"),
        (1000.0, 1.0, 0.06, 0, "usable"),
        (1000.0, 1.0, 0.0, 1, "usable"),
        (2000.0, 0.4, 0.10, 5, "usable"),
        (2001.0, 1.0, 0.0, 0, "off"),
        (499.0, 1.0, 0.0, 0, "off"),
        (1000.0, 0.39, 0.0, 0, "off"),
        (1000.0, None, 0.0, 0, "off"),
        (1000.0, 1.0, 0.11, 0, "off"),
        (1000.0, 1.0, 0.0, 6, "off"),
    ],
)
def test_limits_of_the_verdict(replayed_mean: float, rank: float | None, error: float, rejected: int, verdict: str) -> None:
    recorded, again = Waits(1000, 0, 0, 0), Waits(replayed_mean, 0, 0, 0)
    found, why = judge_replay(
        recorded=recorded, replayed=again, rank_correlation=rank, utilisation_error=error, rejected=rejected, jobs=100
    )
    assert found == verdict
    assert (len(why) == 1 and "limits of close" in why[0]) == (verdict == "close")


def test_waits_below_a_minute_are_called_equal() -> None:
    recorded, again = Waits(50, 0, 0, 0), Waits(0, 0, 0, 0)
    figures = {"rank_correlation": None, "utilisation_error": 0.0, "rejected": 0, "jobs": 10}
    assert judge_replay(recorded=recorded, replayed=again, **figures)[0] == "close"  # type: ignore[arg-type]
    assert judge_replay(recorded=Waits(70, 0, 0, 0), replayed=again, **figures)[0] == "off"  # type: ignore[arg-type]


def test_where_a_log_begins() -> None:
    submit = np.arange(0.0, 1000, 10)
    assert log_begin(submit, submit + 300) == 0.0  # selected by submissions: 30 jobs before the first end, as expected
    long_ago = np.concatenate([[0.0], np.arange(900.0, 1000)])
    assert log_begin(long_ago, long_ago + np.concatenate([[950.0], np.full(100, 5.0)])) == 905.0  # one job was running


def test_a_queue_that_was_there_when_the_log_begins_is_recognised(tmp_path: Path) -> None:
    """What happened on a busy machine in 20 days, and of that the jobs that ended after the eighth, when 16 jobs waited."""
    rng = np.random.default_rng(0)
    number, cut = 1500, 8 * 24 * HOUR
    jobs = Workload(
        submit=np.sort(rng.uniform(0, 20 * 24 * HOUR, number)).round(),
        runtime=np.clip(rng.lognormal(7.7, 1.6, number), 1, 80_000).round(),
        num_tasks=(2 ** rng.integers(0, 6, number)).astype(np.int32),
        cpu_milli=np.full(number, 1000, np.int32),
    )
    happened = queuewise.simulate(jobs, load_cluster("flat:64"), "fcfs+easy", estimates="oracle")
    kept = np.flatnonzero(happened.end >= cut)
    columns = (jobs.submit, happened.start - jobs.submit, jobs.runtime, jobs.num_tasks)
    rows = [tuple(map(int, row)) for row in np.stack(columns, axis=1)[kept].tolist()]
    replay = replayed(tmp_path, rows, "flat:64")  # type: ignore[arg-type]
    assert replay.begin >= cut
    assert ((happened.start >= cut) & (jobs.submit < cut)).sum() == 16
    found = compare_waits(replay)
    assert (found.verdict, found.replayed) == ("close", found.recorded)


def test_jobs_that_ran_or_waited_when_the_log_begins_are_replayed_and_not_compared(tmp_path: Path) -> None:
    """The first job runs from 100 to 2000, the second waits for it. The log begins at the first end, of the third job, at 1010."""
    rows = [(0, 100, 1900, 3), (50, 1950, 10, 4), (1000, 0, 10, 1), *((1010 + n, 0, 1, 1) for n in range(40))]
    replay = replayed(tmp_path, rows, "flat:4")
    assert replay.begin == 1010.0
    assert replay.at_begin.tolist() == [True, True, True] + [False] * 40
    assert replay.replayed_start[:4].tolist() == [100.0, 2000.0, 1000.0, 1010.0]
    assert int(replay.compared.sum()) == 40


def test_jobs_that_never_ran_are_left_out(tmp_path: Path) -> None:
    replay = replayed(tmp_path, [*LIKE_FCFS, (600, 5000, 0, 4)], "flat:4")
    assert (len(replay.workload), replay.left_out) == (4, 1)


def test_rejected_jobs_are_counted(tmp_path: Path) -> None:
    found = compare_waits(replayed(tmp_path, LIKE_FCFS, "flat:3"))
    assert (found.jobs, found.rejected, found.verdict) == (3, 1, "off")
    assert "1 of 4 jobs can never run on the cluster (close: 0%, usable: at most 5%)" in found.why


def test_a_cluster_on_which_nothing_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no job of log with a recorded wait can run on flat:1"):
        compare_waits(replayed(tmp_path, [(0, 0, 10, 2)], "flat:1"))


def test_cause_the_cluster_is_smaller(tmp_path: Path) -> None:
    replay = replayed(tmp_path, [(0, 0, 100, 2), (0, 0, 100, 2), (300, 0, 100, 1)], "flat:2")
    assert "smaller than that of the log, whose jobs had more than 2 cores in 25% of the time (at most 4)" in causes(replay)


def test_cause_the_cluster_is_larger(tmp_path: Path) -> None:
    assert "never had more than 4 of 64 cores: the cluster is larger" in causes(replayed(tmp_path, LIKE_FCFS, "flat:64"))


def test_cause_downtime(tmp_path: Path) -> None:
    """Nothing runs from 100 to 7300, but the third job is there from 50. From 7400 to 20000 nobody waits."""
    replay = replayed(tmp_path, [(0, 0, 100, 1), (50, 7250, 100, 1), (20000, 0, 10, 1)], "flat:1")
    assert idle_gaps(replay).tolist() == [7200.0]
    assert "once no job ran for an hour or more although jobs were waiting (2 h in all): downtime" in causes(replay)


def test_cause_waits_beside_free_processors(tmp_path: Path) -> None:
    """The second job waits 5000 s beside 3 free processors; the replay starts it at once."""
    replay = replayed(tmp_path, [(0, 0, 10000, 1), (0, 5000, 1000, 1), (10000, 0, 10, 1)], "flat:4")
    assert fitting_wait(replay, replay.recorded_start) == pytest.approx((5000, 5000))
    assert fitting_wait(replay, replay.replayed_start) == (0.0, 0.0)
    assert "in the log jobs waited 1 of 1 h while as many cores were free as they ask for, in the replay 0 of 0 h" in causes(replay)


def test_cause_a_limit_of_one_user(tmp_path: Path) -> None:
    rows = [(0, 0, 1000, 4), (0, 1000, 1000, 4), (10, 90_000, 1000, 1), (5000, 0, 10, 1)]
    assert "user 9 has 99% of the waiting in the log and 66% in" not in causes(replayed(tmp_path, rows, "flat:4", [1, 1, 9, 1]))
    free = [(0, 0, 1000, 2), (0, 1000, 1000, 4), (10, 90_000, 100, 1), (100_000, 0, 10, 1)]
    assert "user 9 has 99% of the waiting in the log and 0% in the replay: perhaps a limit of that user" in causes(
        replayed(tmp_path, free, "flat:4", [1, 1, 9, 1])
    )


def test_cause_the_replay_starts_empty(tmp_path: Path) -> None:
    rows = [(n, 900, 10, 1) for n in range(20)] + [(20_000 + n, 0, 10, 1) for n in range(20)]
    assert "starts with an empty cluster: the first 20 jobs waited 900 s in the log and 0 s in the replay" in causes(
        replayed(tmp_path, rows, "flat:64")
    )


SACCT = "JobID|Partition|Account|Submit|Eligible|Start|End|NNodes|AllocTRES|NodeList|State|Timelimit\n" + "\n".join(
    f"{number}|{partition}|x|2024-01-01T{submit}|2024-01-01T{eligible}|2024-01-01T{start}|2024-01-01T{end}|1|cpu=4,node=1|{node}|COMPLETED|02:00:00"
    for number, (partition, node, submit, eligible, start, end) in enumerate([
        ("a", "n1", "00:00:00", "00:00:00", "00:00:00", "01:00:00"),
        ("a", "n1", "00:10:00", "00:10:00", "01:00:00", "02:00:00"),
        ("b", "n2", "00:10:00", "03:10:00", "03:10:00", "04:00:00"),
        ("b", "n2", "04:00:00", "04:00:00", "04:00:00", "05:00:00"),
    ])
)  # fmt: skip


@pytest.fixture
def sacct(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT, encoding="utf-8")
    return path


def test_validate_finds_cluster_and_policy_in_the_log(sacct: Path) -> None:
    told: list[str] = []
    found = queuewise.validate(sacct, notify=told.append)
    assert isinstance(found, Validation)
    assert found.policy == default_policy("slurm")
    assert found.replay.schedule.cluster.num_cores == 8
    assert [(part.key, part.jobs) for part in found.by["partition"]] == [("a", 2), ("b", 2)]
    assert found.replay.replayed_wait.tolist() == [0.0, 3000.0, 0.0, 0.0]  # jobs are bound to their partitions
    assert len(told) == 1
    assert told[0].startswith("no --cluster given: using what the jobs of the log had, 2 nodes, 8 cores, 2 partitions")


def test_cause_jobs_that_were_not_eligible(sacct: Path) -> None:
    found = queuewise.validate(sacct, policy="fcfs+easy")
    assert any(why.startswith("78% of the recorded waiting was before jobs were eligible") for why in found.why)  # 10800 of 13800 s


def test_partitions_are_ignored_on_a_cluster_without_them_unless_kept(sacct: Path) -> None:
    assert queuewise.validate(sacct, "flat:4", "fcfs").rejected == 0
    with pytest.raises(InputError, match="can run on flat:4"):
        queuewise.validate(sacct, "flat:4", "fcfs", keep_partitions=True)


@pytest.mark.parametrize("wait", [-1])
def test_logs_without_waits_are_refused(tmp_path: Path, wait: int) -> None:
    log = loaded(tmp_path, [(0, wait, 10, 1)], header="; MaxProcs: 4\n")
    with pytest.raises(InputError, match="log does not record when its jobs started, so there is nothing to compare with") as refused:
        queuewise.validate(log)
    assert refused.value.hint.startswith("use a log with waits")


def test_without_requests_runtimes_are_predicted(tmp_path: Path) -> None:
    log = loaded(tmp_path, LIKE_FCFS, header="; MaxProcs: 4\n")
    assert queuewise.validate(log).estimates == "requested"
    bare = replace(log, workload=log.workload.replace(requested=np.full(len(log.workload), np.nan)))
    assert queuewise.validate(bare).estimates == "predicted"


def test_the_sacct_log_is_replayed_closely(traces: Path) -> None:
    found = queuewise.validate(traces / "slurm" / "xdmod_phillips_sacct.log.gz")
    assert found.verdict == "close"
    assert found.rank_correlation is not None
    assert found.rank_correlation > 0.95
    assert found.at_begin == 3
