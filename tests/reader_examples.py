"""The smallest log of every format that holds at least one job: what detection and fuzzing start from. And the type of `read`."""

from __future__ import annotations

import io
from collections.abc import Callable

import polars as pl

from queuewise.workload import Loaded

ReadText = Callable[..., Loaded]  # read(text or bytes, **arguments of load_workload)

HELIOS = b"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
OPENB = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
SACCT = b"JobID|Submit|Start|End|State|NNodes|NCPUS|ReqMem|AllocTRES|Timelimit\n"
LSF = (
    b'"JOB_FINISH" "9.11" 1000 17 500 33 4 100 0 0 300 "ann" "night" "rusage[mem=2000]" "" "" "login" "/home" "" "o" "e" "100.17" '
    b'0 2 "2*h1" "2*h2" 64 60.0 "sim" "run ""it"" now" '
    b'1.0 2.0 3 0 -1 0 0 5 0 0 0 0 -1 0 0 0 7 8 -1 "" "proj" 0 4 "" "" 3 900 0 "" "" "" "" 0 "" 0 "" -1 "" "" "" "" -1 "" "" 0 "" 300 '
    b'"" "" 0 2 h1 10 0 1 1 0 h2 10 0 1 1 0 3600 0 0\n'
)


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"submit": [0.0, 5.0], "runtime": [10.0, 2.5], "gpus": [1, 8], "user": ["ann", None]}).write_parquet(buffer)
    return buffer.getvalue()


EXAMPLES: dict[str, tuple[bytes, ...]] = {
    "swf": (
        b"; MaxProcs: 4\n1 0 -1 10 2 -1 -1 -1 20 -1 1 1 1 -1 1 -1 -1 -1\n2 5 3 1.5 -1 -1 -1 4 -1 -1 1 1 1 -1 1 -1 -1 -1\n",
    ),
    "slurm": (
        SACCT + b"1|2020-01-01T00:00:00|2020-01-01T00:00:01|2020-01-01T00:01:00|COMPLETED|1|8|3Gn|cpu=8,gres/gpu:v100=2|UNLIMITED\n",
        b'{"jobs": [{"job_id": 5, "time": {"submission": 5, "start": {"set": true, "infinite": false, "number": 7}, "end": 9,'
        b' "elapsed": 2}, "state": {"current": ["COMPLETED"]}, "allocation_nodes": 1,'
        b' "tres": {"allocated": [{"type": "cpu", "count": 4}]}}]}',
    ),
    "lsf": (LSF,),
    "philly": (
        b'[{"status": "Pass", "vc": "a", "jobid": "x", "submitted_time": "2017-10-01 00:00:00", "user": "u", "attempts": [{"start_time":'
        b' "2017-10-01 00:00:01", "end_time": "2017-10-01 00:01:00", "detail": [{"ip": "m", "gpus": ["gpu0", "gpu1"]}]}]}]',
        b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-09-04 10:30:41,60.0,8,480.0,7f04ca\n",
    ),
    "helios": (
        HELIOS + b"1,u,vcA,4,16,1,COMPLETED,2020-03-26 13:42:30,2020-03-26 13:43:30,2020-03-26 13:44:30,60,60\n",
        b"job_id,submit_time,gpu_num,duration\n1,2020-01-01 00:00:00,1,5\n",
    ),
    "pai": (b"j,worker,1.0,Terminated,5.0,9.0,600.0,29.3,50.0,MISC\n", b"job_id,arrival_s,service_sec,gpu_count\nx,1.0,2.0,8\n"),
    "openb": (OPENB + b"a,1000,10,1,460,T4|V100M16,LS,Running,0,10,1\n",),
    "spot": (
        b"job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n7,3,A10,8,1,2,5,60,Spot job\n",
    ),
    "google2011": (b"700000000,,5,0,u,1,n,l\n700000001,,5,1,u,1,n,l\n900000001,,5,4,u,1,n,l\n",),
    "google2019": (
        b"time,type,collection_id,instance_index,resource_request.cpus\n700000000,0,5,0,0.1\n800000000,3,5,0,0.1\n900000000,FINISH,5,0,0.1\n",
        b'{"time": "700000000", "type": "SUBMIT", "collection_id": "5"}\n{"time": "700000001", "type": "SCHEDULE", "collection_id": "5"}\n'
        b'{"time": "700000009", "type": 6, "collection_id": "5"}\n',
    ),
    "alibaba2017": (b"100,200,3,4,5,Terminated,1,0.5\n",),
    "alibaba2018": (b"M1,5,j_1,1,Terminated,10,20,100,0.5\n",),
    "acme": (
        b"job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        b"1,a,1,8,64,Pretrain,COMPLETED,2023-03-01 00:00:18+08:00,2023-03-01 00:00:19+08:00,2023-03-01 00:01:18+08:00,9,9,9\n",
    ),
    "supercloud": (
        b"id_job,time_submit,time_start,time_end,state,timelimit,tres_alloc\n1,100,110,200,3,4294967295,\"1=40,2=1000,4=2,1002=4\"\n",
    ),
    "eagle": (
        b"job_id,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,submit_time,start_time,end_time\n"
        b"1,100,2,72,3,5,2019-01-01 08:55:55,2019-01-01 08:55:56,2019-01-02 12:39:41\n",
    ),
    "rltune": (b"bert-1_1,1201,0,25,8,-1,-1,-1,-1,-1,2,2,1,-1,0,-1,-1,-1,0\n",),
    "drl_google": (b"submit_time,finish_time,scheduling_class\n0,1000000,2\n",),
    "drl": (b"arrival_time,runtime,gpus,priority\n0,1,0,0.5\n",),
    "csv": (b"submit,runtime,gpus,user\n0,1,2,ann\n5,2.5,1,bob\n",),
    "parquet": (_parquet(),),
}  # fmt: skip
