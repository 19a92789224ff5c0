"""Logs of GPU clusters by hand: Helios, Philly, Acme, SuperCloud, Eagle, RLTune, DRL lists, openb, spot, PAI."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import NodeFacts, ReadOptions, load_workload
from queuewise.workload.jobs import Workload
from reader_examples import HELIOS, OPENB, ReadText


def shape(workload: Workload, job: int = 0) -> tuple[int, int, int, int]:
    """(tasks, GPU milli, CPU milli, MiB) of a job."""
    columns = (workload.num_tasks, workload.gpu_milli, workload.cpu_milli, workload.mem_mib)
    return tuple(int(column[job]) for column in columns)  # type: ignore[return-value]


def test_helios_gpu_and_cpu_jobs(read: ReadText) -> None:
    loaded = read(
        HELIOS.decode()
        + "1,u1,vcA,4,16,1,COMPLETED,2020-03-26 13:00:00,2020-03-26 13:01:00,2020-03-26 14:01:00,3600,60\n"
        + "2,u2,vcA,0,8,1,FAILED,2020-03-26 13:30:00,2020-03-26 13:30:00,2020-03-26 13:30:10,10,0\n"
        + "3,u1,vcB,1,2,1,CANCELLED,2020-03-26 13:40:00,,2020-03-26 13:50:00,,\n"
    )
    assert [shape(loaded.workload, job) for job in range(2)] == [(4, 1000, 4000, 0), (1, 0, 8000, 0)]
    assert loaded.workload.submit.tolist() == [0, 1800]
    assert (loaded.workload.groups, loaded.tally.skipped) == (("vcA",), {"never started": 1})
    assert loaded.workload.epoch % 86_400 == 13 * 3600  # the hour of the log's own clock


def test_helios_virtual_clusters_bind_jobs_only_when_asked(read: ReadText, tmp_path: Path) -> None:
    text = HELIOS.decode() + "1,u1,vcA,4,16,1,COMPLETED,2020-03-26 13:00:00,2020-03-26 13:01:00,2020-03-26 14:01:00,3600,60\n"
    assert read(text).workload.partitions == ()
    assert read(text, options=ReadOptions(partitions=True)).workload.partitions == ("vcA",)
    config = tmp_path / "vc_config.csv"
    config.write_text(",num\nvcA,3\nvcB,many\n")
    loaded = read(text, tables=[config])
    assert loaded.cluster is not None
    assert loaded.cluster.nodes == (NodeFacts(3, 8, "V100-16", partition="vcA", name="vcA"),)
    assert "1 of 2 virtual clusters in vc_config.csv are invalid and were skipped" in loaded.tally.notes


def philly_job(jobid: str, attempts: list[dict[str, object]], submitted: str = "2017-10-03 00:00:00") -> dict[str, object]:
    return {"status": "Pass", "vc": "vc1", "jobid": jobid, "submitted_time": submitted, "user": "u", "attempts": attempts}


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    return {
        "start_time": start,
        "end_time": end,
        "detail": [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus)],
    }


def test_philly_attempts(read: ReadText) -> None:
    ran = attempt("2017-10-03 00:02:00", "2017-10-03 00:10:00", 8, 4)
    again = attempt("2017-10-03 01:00:00", "2017-10-03 02:02:00", 2)
    jobs = [
        philly_job("twice", [ran, again]),
        philly_job("never", []),
        philly_job("running", [attempt("2017-10-03 00:02:00", None, 1)]),
        philly_job("none", [attempt("None", "None", 1)]),
        philly_job("empty", [attempt("2017-10-03 00:02:00", "2017-10-03 00:10:00")]),
        philly_job("undated", [ran], submitted="None"),
    ]
    loaded = read(json.dumps(jobs))
    workload = loaded.workload
    assert shape(workload) == (12, 1000, 0, 0)
    assert (workload.recorded_wait[0], workload.runtime[0], workload.job_id[0], workload.groups) == (120, 7200, "twice", ("vc1",))
    assert loaded.tally.skipped == {
        "no attempts": 1, "still running at the end of the log": 1, "never started": 1, "no GPUs in the first attempt": 1,
        "no submission time": 1,
    }  # fmt: skip


def test_philly_machine_list(read: ReadText, tmp_path: Path) -> None:
    machines = tmp_path / "cluster_machine_list"
    machines.write_text("machineId, number of GPUs, single GPU mem\nm1,2,12GB\nm2,8,24GB\nm3,8,24GB\nm4,?,24GB\n")
    loaded = read(json.dumps([philly_job("a", [attempt("2017-10-03 00:02:00", "2017-10-03 00:10:00", 1)])]), tables=[machines])
    assert loaded.cluster is not None
    assert loaded.cluster.nodes == (NodeFacts(1, 2, "PHILLY-12", name="PHILLY-12"), NodeFacts(2, 8, "PHILLY-24", name="PHILLY-24"))
    assert any("1 of 4 machines" in note for note in loaded.tally.notes)


def test_acme_recomputes_times_across_zones(read: ReadText) -> None:
    header = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    row = "1,a,1,8,64,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,2023-03-01 00:00:10+00:00,2023-03-01 00:01:10.5+00:00,1,2,3\n"
    workload = read(header + row).workload
    assert (workload.recorded_wait[0], workload.runtime[0], shape(workload)) == (10, 60.5, (8, 1000, 8000, 0))


def test_supercloud_resources_by_number(read: ReadText) -> None:
    header = "id_job,id_user,time_submit,time_start,time_end,state,timelimit,tres_alloc\n"
    rows = [
        '1,u1,100,160,1160,3,60,"1=40,2=8000,4=2,1001=4,1002=4"',
        '2,u1,100,50,1160,11,4294967295,"1=1,2=100,4=1"',
        '3,u1,100,0,1160,4,60,"1=1"',
        '4,u1,100,160,0,1,60,"1=1"',
    ]
    loaded = read(header + "\n".join(rows))
    assert [shape(loaded.workload, job) for job in range(2)] == [(2, 2000, 20_000, 4000), (1, 0, 1000, 100)]
    np.testing.assert_equal(loaded.workload.requested, [3600, np.nan])
    assert loaded.workload.recorded_wait.tolist() == [60, 0]
    assert loaded.tally.skipped == {"never started": 1, "not finished when the log was taken": 1}


def test_eagle_nodes_and_uneven_gpus(read: ReadText) -> None:
    header = "job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,submit_time,start_time,end_time\n"
    times = "2019-01-01 08:00:00,2019-01-01 08:00:30,2019-01-01 09:00:30"
    loaded = read(header + f"1,u,a,p,q,7200.0,2,72,0,100.0,{times}\n2,u,a,p,q,7200.0,2,6,3,0.0,{times}\n")
    assert [shape(loaded.workload, job) for job in range(2)] == [(2, 0, 36_000, 50), (3, 1000, 2000, 0)]
    assert (loaded.workload.requested[0], loaded.workload.recorded_wait[0], loaded.workload.runtime[0]) == (7200, 30, 3600)


@pytest.mark.parametrize("width", [19, 20])
def test_rltune_columns_are_found_from_the_end(read: ReadText, width: int) -> None:
    lead = "bert-1_1,1201,7,25,8,-1,-1,-1,90,-1,2,2,1,-1,0,-1,-1"
    loaded = read(f"{lead}{',-1' if width == 20 else ''},3,4\n{lead}{',-1' if width == 20 else ''},-1,9\n")
    workload = loaded.workload
    assert (shape(workload), workload.kind_sets[workload.kind_set[0]], workload.groups) == ((8, 1000, 0, 0), ("V100-32",), ("3",))
    assert (workload.recorded_wait[0], workload.requested[0]) == (7, 90)
    assert loaded.tally.skipped == {"unknown GPU type": 1}


def test_drl_list(read: ReadText) -> None:
    loaded = read("arrival_time,runtime,gpus,priority\n3,60,4,2.5\n1,30,0,0.5\n2,30,-1,0.5\n")
    assert [shape(loaded.workload, job) for job in range(2)] == [(1, 0, 1000, 0), (4, 1000, 0, 0)]
    assert loaded.workload.priority.tolist() == [0.5, 2.5]
    assert (loaded.tally.filled, loaded.tally.skipped) == ({"cpu_milli": 1}, {"negative demand": 1})


def test_openb_shares_whole_gpus_and_specs(read: ReadText) -> None:
    pods = [
        "share,6000,1024,1,460,V100M32|T4|T4,LS,Running,100,400,150",
        "whole,8000,2048,8,1000,,BE,Running,100,400,100",
        "cpu,4000,512,0,0,T4,BE,Running,100,400,100",
        "odd,4000,512,3,500,,BE,Running,100,400,100",
    ]
    loaded = read(OPENB.decode() + "\n".join(pods))
    workload = loaded.workload
    assert [shape(workload, job) for job in range(3)] == [(1, 460, 6000, 1024), (1, 8000, 8000, 2048), (1, 0, 4000, 512)]
    assert [workload.kind_sets[code] for code in workload.kind_set] == [("T4", "V100-32"), (), ()]
    assert (workload.recorded_wait[0], workload.runtime[0]) == (50, 250)
    assert loaded.tally.skipped == {"GPU demand above 1 that is not a whole number": 1}


def test_spot_workers(read: ReadText) -> None:
    header = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    workload = read(header + "7,3,A100-SXM4-80GB,8,2,4,5,60,HP job\n8,3,A10,2,0.5,1,6,60,Spot job\n").workload
    assert [shape(workload, job) for job in range(2)] == [(4, 2000, 8000, 0), (1, 500, 2000, 0)]
    assert workload.kind_sets == ((), ("A100-80",), ("A10",))
    assert (workload.priority.tolist(), workload.groups) == ([1, 0], ("3",))


@pytest.fixture
def pai_tables(tmp_path: Path) -> dict[str, Path]:
    long_id = "f7f6218cb5cb82e00b85476691d15d5055c143a351396d8f81737421dbd6"
    tables = {
        "task": "j1,ps,1.0,Terminated,110.0,200.0,600.0,2.0,,\nj1,worker,2.0,Terminated,120.0,200.0,400.0,1.5,50.0,T4\n"
        "j2,worker,1.0,Failed,300.0,,100.0,1.0,250.0,V100\nj3,worker,1.0,Running,300.0,,100.0,1.0,100.0,V100\n",
        "job": f"j1,{long_id},u1,Terminated,100.0,200.0\nj2,x,u2,Failed,290.0,350.0\n",
        "instance": "j2,worker,i,w,x,Failed,300.0,340.0,m1\nj2,worker,i2,w2,x,Failed,310.0,345.0,m1\n",
        "tag": f"{long_id},u1,V100M32,grp,bert\n",
        "machine": "m1,V100M32,96,384,8\nm2,CPU,96,512,0\nm3,V100M32,96,384,8\n",
    }
    paths = {}
    for name, text in tables.items():
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text(text)
    return paths


def test_pai_tables_are_joined(pai_tables: dict[str, Path]) -> None:
    loaded = load_workload(pai_tables["task"], tables=[path for name, path in pai_tables.items() if name != "task"])
    workload = loaded.workload
    assert workload.job_id.tolist() == ["j1/ps", "j1/worker", "j2/worker"]
    assert [shape(workload, job) for job in range(3)] == [(1, 0, 6000, 2048), (2, 500, 4000, 1536), (1, 3000, 1000, 1024)]
    assert workload.submit.tolist() == [100, 100, 290]
    assert workload.recorded_wait.tolist() == [10, 10, 10]  # earliest task start - job start
    assert workload.runtime.tolist() == [90, 80, 45]
    assert [workload.kind_sets[code] for code in workload.kind_set] == [(), ("V100-32",), ()]
    assert (workload.users, workload.job_name.tolist()) == (("u1", "u2"), [0, 0, -1])
    assert loaded.tally.skipped == {"not finished when the log was taken": 1}
    assert loaded.tally.filled == {"runtime": 1, "gpu_milli": 1}
    assert loaded.cluster is not None
    assert [(node.count, node.kind, node.gpus) for node in loaded.cluster.nodes] == [(2, "V100-32", 8), (1, "", 0)]


def test_pai_tasks_alone(pai_tables: dict[str, Path]) -> None:
    loaded = load_workload(pai_tables["task"])
    assert loaded.workload.submit.tolist() == [110, 120]
    assert loaded.tally.filled == {"submit": 2}
    assert np.isnan(loaded.workload.recorded_wait).all()


def test_pai_job_table_alone_says_what_is_missing(pai_tables: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="which has no resource requests") as caught:
        load_workload(pai_tables["job"])
    assert "pai_task_table" in caught.value.hint


def test_pai_two_tables_of_one_kind(pai_tables: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="a second job table"):
        load_workload(pai_tables["task"], tables=[pai_tables["job"], pai_tables["job"]])
