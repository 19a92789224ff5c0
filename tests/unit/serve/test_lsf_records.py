"""What LSF prints: awkward values are read, and what is not understood is refused with the job and the field."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from queuewise import load_policy
from queuewise.errors import InputError
from queuewise.policies.snapshot import Place
from queuewise.serve.live_policy import Decided, RankedStart
from queuewise.serve.lsf_advice import advice_text
from queuewise.serve.lsf_records import (
    job_number,
    parse_gpus,
    parse_hosts,
    parse_mib,
    parse_seconds,
    parse_time,
    read_lsf_hosts,
    read_lsf_jobs,
    read_lsf_queues,
)
from queuewise.serve.lsf_snapshot import brun_command, host_features, order_commands, take_lsf_snapshot

NOW = datetime(2026, 3, 1, 12, 0).timestamp()


def bjobs(*records: dict[str, Any]) -> str:
    return json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": list(records)})


def job(number: str, **fields: str) -> dict[str, str]:
    usual = {"JOBID": number, "STAT": "PEND", "QUEUE": "normal", "USER": "ann", "SUBMIT_TIME": "Mar 1 11:00", "RUNTIMELIMIT": "60.0"}
    return {**usual, "SLOTS": "2", **fields}


HOSTS = json.dumps(
    {
        "COMMAND": "bhosts",
        "HOSTS": 3,
        "RECORDS": [
            {"HOST_NAME": "h1", "STATUS": "ok", "MAX": "16", "NJOBS": "4", "NGPUS": "4", "NGPUS_ALLOC": "2", "MAX_MEM": "64 Gbytes"},
            {"HOST_NAME": "h2", "STATUS": "ok", "MAX": "16", "NJOBS": "0", "NGPUS": "-", "MAX_MEM": "5.2 Gbytes"},
            {"HOST_NAME": "h3", "STATUS": "closed_Adm", "MAX": "16", "NJOBS": "0", "NGPUS": "4", "MAX_MEM": "-"},
        ],
    }
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Dec 28 19:56", datetime(2025, 12, 28, 19, 56)),  # of the year before
        ("Mar  1 11:00", datetime(2026, 3, 1, 11, 0)),
        ("Feb 29 08:00", datetime(2024, 2, 29, 8, 0)),
        ("Jan  2 03:04:05 2020", datetime(2020, 1, 2, 3, 4, 5)),
        ("Dec 28 19:56 L", datetime(2025, 12, 28, 19, 56)),
        ("2026-02-01T00:00:01", datetime(2026, 2, 1, 0, 0, 1)),
    ],
)
def test_times_with_and_without_years(text: str, wanted: datetime) -> None:
    assert parse_time(text, NOW) == wanted.timestamp()


def test_values_with_units() -> None:
    assert parse_hosts("16*h1:h2:h2") == {"h1": 16, "h2": 2}
    assert parse_hosts("-") == {}
    assert parse_gpus("h1:0,1;h2:3") == {"h1": (0, 1), "h2": (3,)}
    assert [parse_mib(text) for text in ("9 Mbytes", "5.2 Gbytes", "512M", "2048 KB", "-")] == [9, 5324, 512, 2, 0]
    assert [parse_seconds(text) for text in ("16038 second(s)", "17", "-")] == [16038.0, 17.0, None]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (job("x"), "JOBID is 'x'"),
        (job("1", STAT="DANCING"), "job 1: STAT is 'DANCING'"),
        (job("1", SUBMIT_TIME="yesterday"), "job 1: 'yesterday' is no time"),
        (job("1", RUNTIMELIMIT="soon"), "RUNTIMELIMIT is 'soon', not a number"),
        (job("1", MEMLIMIT="many"), "'many' is no amount of memory"),
        (job("1", STAT="RUN", EXEC_HOST="16**h1"), "EXEC_HOST has '16**h1'"),
        (job("1", STAT="RUN", EXEC_HOST="h1", GPU_ALLOC="h1:a"), "GPU_ALLOC has 'h1:a'"),
        (job("1", QUEUE=""), "has no QUEUE"),
        (job("1", JOBINDEX="abc"), "JOBID is '1[abc]'"),
        (job("1", MEMLIMIT="9" * 400), "is no amount of memory"),
        (job("1", STAT="RUN", EXEC_HOST="9" * 5000 + "*h1"), "EXEC_HOST has"),
        (job("1", STAT="RUN", EXEC_HOST="h1", GPU_ALLOC="h1:99999999999"), "GPU_ALLOC has 'h1:99999999999'"),
    ],
)
def test_what_is_not_understood_is_refused(record: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        read_lsf_jobs(bjobs(record), NOW)
    assert problem in str(refused.value)
    assert refused.value.hint


def test_hosts_have_so_many_gpus_at_most() -> None:
    with pytest.raises(InputError, match="host h1: NGPUS is 99999999999"):
        read_lsf_hosts(json.dumps({"RECORDS": [{"HOST_NAME": "h1", "STATUS": "ok", "NGPUS": "99999999999"}]}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"RECORDS": 3}', '{"RECORDS": [3]}'])
def test_what_is_no_list_of_records_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_lsf_jobs(text, NOW)


def test_slots_that_are_not_known_are_looked_for_elsewhere() -> None:
    assert read_lsf_jobs(bjobs(job("1", SLOTS="-", NREQ_SLOT="16")), NOW)[0].slots == 16


def test_begin_times_lie_ahead() -> None:
    begin = read_lsf_jobs(bjobs(job("1", SPECIFIED_START_TIME="Jan 2 08:00")), NOW)[0].begin
    assert begin == datetime(2027, 1, 2, 8, 0).timestamp()


def test_elements_of_arrays_have_the_number_that_lsf_gives_them() -> None:
    assert [job_number(one) for one in ("12", "12[3]", 12)] == [12, 12 + 3 * 2**32, 12]
    start = RankedStart("12[3]", (Place(1, 1, ()),), ("h2",))
    assert advice_text(Decided((start,)), ["12[3]", "12[4]"]) == b"12884901900 1\n17179869196 \nEND\n"


def test_gpus_go_with_slots_or_stay_together() -> None:
    jobs = read_lsf_jobs(bjobs(job("1", SLOTS="1", GPU_NUM="4"), job("2", SLOTS="4", GPU_NUM="2"), job("3", SLOTS="6", GPU_NUM="4")), NOW)
    found = [one.job for one in take_lsf_snapshot(jobs, read_lsf_hosts(HOSTS), NOW).snapshot.queue]
    assert [(one.num_tasks, one.gpu_milli, one.cpu_milli) for one in found] == [(1, 4000, 1000), (2, 1000, 2000), (2, 2000, 3000)]


def test_exclusive_hosts_are_closed() -> None:
    hosts = read_lsf_hosts(HOSTS.replace('"closed_Adm"', '"closed_Excl"'))
    assert take_lsf_snapshot([], hosts, NOW).snapshot.nodes[2].state == "drained"


def test_queues_use_their_hosts() -> None:
    queues = read_lsf_queues(json.dumps({"RECORDS": [
        {"QUEUE_NAME": "normal", "STATUS": "Open:Active", "HOSTS": "h2+1"},
        {"QUEUE_NAME": "grouped", "STATUS": "Open:Active", "HOSTS": "fast/"},
    ]}))  # fmt: skip
    jobs = read_lsf_jobs(bjobs(job("1"), job("2", QUEUE="grouped")), NOW)
    state = take_lsf_snapshot(jobs, read_lsf_hosts(HOSTS), NOW, queues=queues)
    assert [start.nodes for start in load_policy("fcfs").decide(state.snapshot)] == [("h2",)]
    assert state.left_alone == {"2": "the hosts of queue grouped are not understood"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"STAT": "PSUSP"}, "held by its user"),
        ({"JOB_DESCRIPTION": "mine"}, "not held back"),
        ({"RSVID": "user1#0"}, "reservation user1#0"),
        ({"ASK_HOSTS": "h1"}, "asks for hosts h1"),
        ({"EXCLUSIVE": "Y"}, "hosts of its own"),
        ({"COMBINED_RESREQ": "select[type == local] order[r15s:pg] rusage[mem=100]"}, ""),
        ({"COMBINED_RESREQ": "select[type == local] span[hosts=1]"}, "not understood"),
    ],
)
def test_jobs_that_are_placed_are_marked_and_understood(fields: dict[str, str], reason: str) -> None:
    jobs = read_lsf_jobs(bjobs(job("1", **{"JOB_DESCRIPTION": "queuewise", **fields})), NOW)
    found = take_lsf_snapshot(jobs, read_lsf_hosts(HOSTS), NOW, held=True).left_alone.get("1", "")
    assert reason in found
    assert bool(reason) == bool(found)


def test_jobs_that_have_left_are_skipped() -> None:
    assert read_lsf_jobs(bjobs({"JOBID": "7", "ERROR": "Job <7> is not found"}), NOW) == []


def test_a_snapshot_is_decided_and_becomes_commands() -> None:
    jobs = read_lsf_jobs(
        bjobs(
            job("1", STAT="RUN", EXEC_HOST="4*h1", SLOTS="4", GPU_NUM="2", GPU_ALLOC="h1:0,1", START_TIME="Mar 1 11:30"),
            job("2", SLOTS="8", RUNTIMELIMIT="600.0"),
            job("3", SLOTS="4", GPU_NUM="2", RUNTIMELIMIT="10.0"),
            job("4", STAT="PSUSP"),
            job("5", DEPENDENCY="done(2)"),
            job("6", QUEUE="other"),
            job("8", JOBINDEX="3", SLOTS="1"),
        ),
        NOW,
    )
    state = take_lsf_snapshot(jobs, read_lsf_hosts(HOSTS), NOW, queues=("normal",))
    assert set(state.left_alone) == {"4", "5", "6"}
    assert [one.job.job_id for one in state.snapshot.queue] == ["2", "3", "8[3]"]
    decided = load_policy("sjf+easy").decide(state.snapshot)
    assert {start.job_id: start.nodes for start in decided}["3"] == ("h1",)  # the only open host with two free GPUs
    assert all("h3" not in start.nodes for start in decided)
    start = next(one for one in decided if one.job_id == "3")
    assert brun_command(start, state.jobs["3"], 2) == ("brun", "-m", "h1#4", "3")
    assert order_commands(["3", "2"]) == [("btop", "3", "1"), ("btop", "2", "2")]
    assert host_features(state.snapshot, 4, 1, 0)[0] == [12 / 16, 2 / 4, 1.0, 1.0]
    assert [row[3] for row in host_features(state.snapshot, 4, 1, 0)] == [1.0, 0.0, 0.0]
