"""Logs of CPU clusters by hand: LSF, Google, Alibaba batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.workload import ReadOptions, load_workload
from queuewise.workload.readers.lsf import MalformedRecord, parse_record
from reader_examples import LSF, ReadText


def test_lsf_record_fields() -> None:
    record = parse_record(LSF.decode().rstrip("\n"))
    assert (record["job_id"], record["user_name"], record["exec_hosts"], record["command"]) == ("17", "ann", ["h1", "h2"], 'run "it" now')
    assert (record["j_status"], record["project_name"], record["idx"], record["max_rmem"]) == ("64", "proj", "3", "900")
    assert record["run_limit"] == 3600


def test_lsf_job(read: ReadText) -> None:
    loaded = read(LSF, options=ReadOptions(recorded=True))
    workload = loaded.workload
    assert loaded.recorded is not None
    assert loaded.recorded.node_lists == ("h1,h2",)
    assert (workload.num_tasks[0], workload.cpu_milli[0], workload.mem_mib[0]) == (4, 1000, 1000)  # 2000 MB on each of two hosts
    assert (workload.epoch, workload.recorded_wait[0], workload.runtime[0], workload.requested[0]) == (100, 200, 700, 3600)
    assert (workload.job_id[0], workload.users, workload.groups) == ("17[3]", ("ann",), ("proj",))


def test_lsf_gpus_are_those_of_each_host(read: ReadText) -> None:
    workload = read(LSF.replace(b"rusage[mem=2000]", b"rusage[mem=2G,ngpus_physical=3.00]")).workload
    assert (workload.num_tasks[0], workload.gpu_milli[0], workload.cpu_milli[0], workload.mem_mib[0]) == (2, 3000, 2000, 2048)


def test_lsf_other_lines_are_counted(read: ReadText) -> None:
    never = LSF.replace(b" 100 0 0 300 ", b" 100 0 0 0 ")
    other = b'"EVENT_ADRSV_FINISH" "9.11" 1000 1 2\n'
    tally = read(LSF + never + other + LSF[:200] + b"\n").tally
    assert (tally.kept, tally.rows_read) == (1, 4)
    assert tally.skipped["never started"] == 1
    assert tally.skipped["not a JOB_FINISH record"] == 1
    assert sum(tally.skipped.values()) == 3
    assert tally.first_line["not a JOB_FINISH record"] == 3


@pytest.mark.parametrize("cut", [40, 150, 190, 230])
def test_lsf_cut_records_are_refused(cut: int) -> None:
    with pytest.raises(MalformedRecord):
        parse_record(LSF.decode()[:cut])


TASKS_2011 = """700000000,,5,0,,0,u,1,9,0.5,0.25,0,0
700000000,,5,1,,0,u,1,9,0.25,0.25,0,0
710000000,,5,0,m,1,u,1,9,0.5,0.25,0,0
720000000,,5,1,m,1,u,1,9,0.25,0.25,0,0
730000000,,5,0,m,2,u,1,9,0.5,0.25,0,0
730000000,,5,0,,0,u,1,9,0.5,0.25,0,0
740000000,,5,0,m,1,u,1,9,0.5,0.25,0,0
900000000,,5,0,m,4,u,1,9,0.5,0.25,0,0
910000000,,5,1,m,5,u,1,9,0.25,0.25,0,0
0,,6,0,,0,u,1,9,0.5,0.25,0,0
700000000,,7,0,,0,v,1,9,0.5,0.25,0,0
705000000,,7,0,m,1,v,1,9,0.5,0.25,0,0
700000000,,8,0,,0,v,1,9,0.5,0.25,0,0
"""


def test_google_2011_tasks_make_a_job(read: ReadText) -> None:
    loaded = read(TASKS_2011)
    workload = loaded.workload
    assert workload.job_id.tolist() == [5]
    assert (workload.num_tasks[0], workload.cpu_milli[0], workload.mem_mib[0]) == (2, 50_000, 25_600)
    assert (workload.submit[0], workload.recorded_wait[0], workload.runtime[0], workload.priority[0]) == (700, 10, 200, 9)
    assert loaded.tally.skipped == {"submitted before the log begins": 1, "not finished when the log was taken": 1, "never started": 1}
    assert any(note.startswith("1 jobs have tasks of different sizes") for note in loaded.tally.notes)


def test_google_2011_parts_and_tables_together(read: ReadText, tmp_path: Path) -> None:
    jobs = tmp_path / "job_events.csv"
    jobs.write_text("690000000,,5,0,u,1,n,logical\n")
    workload = read(TASKS_2011, tables=[jobs]).workload
    assert (workload.submit[0], workload.recorded_wait[0], workload.job_name[0]) == (690, 20, 0)


def test_google_2019_names_and_numbers_mean_the_same(read: ReadText) -> None:
    header = "time,type,collection_id,priority,instance_index,collection_type,resource_request.cpus,resource_request.memory\n"
    by_number = "700000000,0,5,200,0,0,0.1,0.05\n800000000,3,5,200,0,0,0.1,0.05\n900000000,6,5,200,0,0,0.1,0.05\n"
    by_name = by_number.replace(",0,5,", ",SUBMIT,5,").replace(",3,5,", ",SCHEDULE,5,").replace(",6,5,", ",FINISH,5,")
    alloc_set = "700000000,0,6,200,0,1,0.1,0.05\n"
    for text in (by_number, by_name):
        loaded = read(header + text + alloc_set)
        workload = loaded.workload
        assert (workload.cpu_milli[0], workload.mem_mib[0], workload.recorded_wait[0], workload.runtime[0]) == (10_000, 5_120, 100, 100)
        assert "1 events of alloc sets were skipped" in loaded.tally.notes


def test_google_2019_json_lines(read: ReadText) -> None:
    lines = [
        '{"time": "700000000", "type": "SUBMIT", "collection_id": "5", "instance_index": 0,'
        ' "resource_request": {"cpus": 0.1, "memory": 0.05}}',
        '{"time": "800000000", "type": "SCHEDULE", "collection_id": "5", "instance_index": 0}',
        "not json",
        '{"time": "900000000", "type": "KILL", "collection_id": "5", "instance_index": 0}',
        '{"time": "9223372036854775807", "type": "KILL", "collection_id": "6", "instance_index": 0}',
    ]
    loaded = read("\n".join(lines))
    assert (loaded.workload.cpu_milli[0], loaded.workload.runtime[0]) == (10_000, 100)
    assert "1 lines are not JSON objects and were skipped" in loaded.tally.notes
    assert "1 events without a valid time, job or type were skipped" in loaded.tally.notes


def test_alibaba_2017(read: ReadText) -> None:
    loaded = read("100,160,3,4,5,Terminated,2,0.5\n100,160,3,5,5,Terminated,,\n100,160,3,6,5,Running,1,0.1\n")
    assert loaded.workload.num_tasks.tolist() == [5, 5]
    assert loaded.workload.cpu_milli.tolist() == [2000, 1000]
    assert loaded.workload.job_id.tolist() == ["3/4", "3/5"]
    assert (loaded.tally.filled, loaded.tally.skipped) == ({"cpu_milli": 1}, {"not finished when the log was taken": 1})
    assert np.isnan(loaded.workload.recorded_wait).all()


def test_alibaba_2018(read: ReadText) -> None:
    loaded = read("M1,5,j_1,1,Terminated,10,25,150,0.5\nR2_1,1,j_1,1,Waiting,0,0,100,0.1\nR3_1,1,j_1,1,Running,30,0,100,0.1\n")
    assert (loaded.workload.submit[0], loaded.workload.runtime[0], loaded.workload.cpu_milli[0]) == (10, 15, 1500)
    assert loaded.tally.skipped == {"not finished when the log was taken": 2}


def test_google_part_of_two_kinds(traces: Path) -> None:
    """Real parts, as they come: a job seen in both tables is one job."""
    folder = traces / "google"
    both = load_workload(
        folder / "task_events-part-00001-of-00500.csv.gz", tables=[folder / "job_events-part-00000-of-00500.csv.gz"]
    ).workload
    assert len(np.unique(both.job_id)) == len(both)
    assert (both.recorded_wait[~np.isnan(both.recorded_wait)] >= 0).all()
