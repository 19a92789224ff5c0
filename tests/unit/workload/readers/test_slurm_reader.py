"""sacct in its three forms."""

from __future__ import annotations

import json

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import ReadOptions
from queuewise.workload.jobs import UNKNOWN
from reader_examples import ReadText

HEADER = "JobID|Submit|Start|End|State|NNodes|NCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|User|Account|Partition|QOS|JobName"
GOOD = {
    "JobID": "7", "Submit": "2024-05-01T10:00:00", "Start": "2024-05-01T10:05:00", "End": "2024-05-01T11:05:00", "State": "COMPLETED",
    "NNodes": "2", "NCPUS": "16", "ReqMem": "4G", "ReqTRES": "", "AllocTRES": "cpu=16,mem=8G,node=2,gres/gpu=4", "Timelimit": "02:00:00",
    "User": "ann", "Account": "lab", "Partition": "gpu", "QOS": "high", "JobName": "train",
}  # fmt: skip


def sacct(*jobs: dict[str, str], header: str = HEADER) -> str:
    return "\n".join([header, *("|".join((GOOD | job)[name] for name in header.split("|")) for job in jobs)]) + "\n"


def test_a_job_becomes_one_task_a_node(read: ReadText) -> None:
    workload = read(sacct({})).workload
    assert (workload.num_tasks[0], workload.gpu_milli[0], workload.cpu_milli[0], workload.mem_mib[0]) == (2, 2000, 8000, 4096)
    assert (workload.recorded_wait[0], workload.runtime[0], workload.requested[0]) == (300, 3600, 7200)
    assert (workload.users, workload.groups, workload.qos_names) == (("ann",), ("lab",), ("high",))


def test_records_follow_the_jobs_and_their_clock(read: ReadText) -> None:
    """Rows are sorted by submission; the clock starts with the first of them. Without --partitions, names are kept here alone."""
    header = f"{HEADER}|Eligible|NodeList"
    late = {"Submit": "2024-05-01T10:04:00", "Eligible": "2024-05-01T10:05:00", "NodeList": "n[1-2]", "Partition": "cpu"}
    early = {"JobID": "8", "Eligible": "Unknown", "NodeList": "None assigned"}
    loaded = read(sacct(late, early, header=header), options=ReadOptions(recorded=True))
    recorded = loaded.recorded
    assert recorded is not None
    assert (loaded.workload.job_id.tolist(), loaded.workload.partitions) == ([8, 7], ())
    assert (recorded.node_list.tolist(), recorded.node_lists) == ([UNKNOWN, 0], ("n[1-2]",))
    assert [recorded.partitions[code] for code in recorded.partition] == ["gpu", "cpu"]
    np.testing.assert_array_equal(recorded.eligible, [np.nan, 300.0])
    first = read(sacct(late, early, header=header), options=ReadOptions(recorded=True), jobs=1)
    assert first.recorded is not None
    assert first.recorded.node_list.tolist() == [UNKNOWN]
    assert read(sacct(late, header=header)).recorded is None


def test_fields_may_come_in_any_order(read: ReadText) -> None:
    shuffled = "|".join(reversed(HEADER.split("|")))
    straight, turned = read(sacct({})).workload, read(sacct({}, header=shuffled)).workload
    assert (turned.runtime[0], turned.gpus[0], turned.users) == (straight.runtime[0], straight.gpus[0], straight.users)


def test_steps_and_unfinished_and_unknown_are_counted(read: ReadText) -> None:
    tally = read(
        sacct(
            {},
            {"JobID": "7.batch"},
            {"JobID": "7.0"},
            {"JobID": "8", "State": "RUNNING", "End": "Unknown"},
            {"JobID": "9", "State": "PENDING", "Start": "Unknown", "End": "Unknown"},
            {"JobID": "10", "State": "CANCELLED by 12", "Start": "None", "End": "2024-05-01T11:05:00"},
            {"JobID": "11", "State": "EXPLODED"},
            {"JobID": "12", "State": "FAILED", "End": "Unknown"},
            {"JobID": "13", "State": "CANCELLED by 12"},
        )
    ).tally
    assert tally.skipped == {
        "job step": 2, "not finished when the log was taken": 2, "never started": 1, "unknown state": 1, "no end time": 1,
    }  # fmt: skip
    assert tally.kept == 2


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("1-06:00:00", 108_000), ("00:30:00", 1_800), ("15:00", 900), ("UNLIMITED", np.nan), ("Partition_Limit", np.nan), ("", np.nan)],
)
def test_time_limits(read: ReadText, limit: str, seconds: float) -> None:
    np.testing.assert_equal(read(sacct({"Timelimit": limit})).workload.requested[0], seconds)


@pytest.mark.parametrize(
    ("alloc", "req", "gpus"),
    [
        ("cpu=16,gres/gpu=4,gres/gpu:v100=4", "", 4),  # both forms name the same GPUs
        ("cpu=16,gres/gpu:v100=2,gres/gpu:a100=2", "", 4),
        ("cpu=16", "cpu=16,gres/gpu=2", 2),
        ("cpu=16", "", 0),
        ("cpu=16,gres/gpu=3", "", 3),
    ],
)
def test_gpus_are_counted_once(read: ReadText, alloc: str, req: str, gpus: int) -> None:
    assert read(sacct({"AllocTRES": alloc, "ReqTRES": req})).workload.gpus[0] == gpus


@pytest.mark.parametrize(
    ("reqmem", "a_task"),
    [("31000Mn", 31_000), ("2Gc", 16 * 2048 // 2), ("16G", 8192), ("2147486648Mn", 16 * 3000 // 2), ("2147483647Mn", 0), ("?", 0), ("", 0)],
)
def test_requested_memory(read: ReadText, reqmem: str, a_task: int) -> None:
    loaded = read(sacct({"ReqMem": reqmem, "AllocTRES": "cpu=16,node=2"}))
    assert loaded.workload.mem_mib[0] == a_task
    assert loaded.tally.filled == ({"mem_mib": 1} if reqmem == "2147483647Mn" else {})


def test_gpu_kind_of_the_request_limits_the_job(read: ReadText) -> None:
    workload = read(sacct({"ReqTRES": "cpu=16,gres/gpu:a100=4"}, {"JobID": "8", "ReqTRES": "cpu=16,gres/gpu:mystery=4"})).workload
    assert workload.kind_sets == ((), ("A100-40",))
    assert workload.kind_set.tolist() == [1, 0]


def test_clock_set_back_does_not_lose_the_job(read: ReadText) -> None:
    """Submitted before and started after the clock was set back: Slurm's elapsed time is right, the wait is 0."""
    header = HEADER + "|Elapsed"
    job = {"Submit": "2024-10-27T02:59:00", "Start": "2024-10-27T02:01:00", "End": "2024-10-27T02:31:00", "Elapsed": "00:30:00"}
    workload = read(sacct(job, header=header)).workload
    assert (workload.recorded_wait[0], workload.runtime[0]) == (0, 1800)


def test_missing_columns_are_named(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"log\.txt:1: missing columns: submit, end; found: jobid, start"):
        read("JobID|Start\n1|2024-05-01T10:00:00\n", format="slurm")


def test_header_again_in_the_middle_is_counted(read: ReadText) -> None:
    assert read(sacct({}) + sacct({"JobID": "8"})).tally.skipped == {"repeated header line": 1}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain numbers", "number objects"])
def test_json_in_both_styles(read: ReadText, wrapped: bool) -> None:
    def number(value: int) -> object:
        return {"set": True, "infinite": False, "number": value} if wrapped else value

    gpus = [
        {"type": "cpu", "name": "", "count": 16},
        {"type": "gres", "name": "gpu:v100", "count": 4},
        {"type": "mem", "name": "", "count": 8192},
    ]
    time = {"submission": 1000, "start": 1300, "end": 4900, "elapsed": 3600, "limit": number(120), "eligible": 1100}
    job = {
        "job_id": 7, "name": "train", "user": "ann", "account": "lab", "partition": "gpu", "qos": "high", "allocation_nodes": 2,
        "time": time, "nodes": "n[1-2]",
        "state": {"current": ["COMPLETED"] if wrapped else "COMPLETED"}, "tres": {"allocated": gpus, "requested": gpus},
    }  # fmt: skip
    unlimited = job | {"job_id": 8, "time": time | {"limit": {"set": True, "infinite": True, "number": 0}}}
    running = job | {"job_id": 9, "state": {"current": ["RUNNING"]}, "time": time | {"end": 0}}
    loaded = read(json.dumps({"jobs": [job, unlimited, running]}), options=ReadOptions(recorded=True))
    workload = loaded.workload
    assert (workload.num_tasks[0], workload.gpu_milli[0], workload.cpu_milli[0], workload.mem_mib[0]) == (2, 2000, 8000, 4096)
    assert (workload.recorded_wait[0], workload.runtime[0], workload.epoch, workload.users) == (300, 3600, 1000, ("ann",))
    np.testing.assert_equal(workload.requested, [7200, np.nan])
    assert loaded.recorded is not None
    assert (loaded.recorded.node_lists, loaded.recorded.eligible.tolist()) == (("n[1-2]",), [100, 100])
    assert loaded.tally.skipped == {"not finished when the log was taken": 1}


def test_broken_json_is_one_line(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"log\.txt:2: not valid JSON"):
        read('{"jobs": [\n{"job_id": }]}')


def test_table_for_the_eye_says_what_to_run(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"human-readable output of sacct.*sacct --parsable2"):
        read("JobID           JobName  Partition \n------------ ---------- ---------- \n12                 bash      debug \n")


def test_quotes_in_job_names_are_plain_characters(read: ReadText) -> None:
    loaded = read(sacct({"JobName": '"odd'}, {"JobID": "8", "JobName": 'a"b'}, {"JobID": "9", "JobName": "one|two"}))
    assert loaded.workload.job_id.tolist() == [7, 8]
    assert loaded.tally.skipped == {"too many fields": 1}
