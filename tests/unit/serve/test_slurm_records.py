"""What Slurm prints: the number formats of all releases, types of GPUs, and states of jobs and nodes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from fake_slurm import NOW, node, row
from queuewise.errors import InputError
from queuewise.serve.slurm_control import ServerClock, SlurmCommands, begins_later
from queuewise.serve.slurm_records import SlurmJob, SlurmNodeState, read_jobs, read_nodes


def job(job_id: int = 7, **fields: Any) -> SlurmJob:
    return read_jobs(json.dumps({"jobs": [row(job_id, **fields)]}))[0]


def machine(**fields: Any) -> SlurmNodeState:
    return read_nodes(json.dumps({"nodes": [node("n1", **fields)]}))[0]


def test_both_formats_of_numbers_are_the_same_job() -> None:
    assert job(newer=True) == job(newer=False)
    assert job(newer=True).limit_s == 3600
    no_limit = {"set": True, "infinite": True, "number": 0}
    assert not job(newer=True, time_limit=no_limit).limit_known
    assert machine(newer=True) == machine(newer=False, state="IDLE")


@pytest.mark.parametrize(
    ("text", "kinds", "strange"),
    [
        ("gres:gpu:a100:4", (("a100", 4),), ""),
        ("gres/gpu:1g.5gb:7", (("1g.5gb", 7),), ""),
        ("gres/gpu:a100:4,gres/gpu:v100:2", (("a100", 4), ("v100", 2)), ""),
        ("gres:gpu:2", (("", 2),), ""),
        ("gres:gpu", (("", 1),), ""),
        ("gres/shard:3", (), "shard"),
        ("gres/gpu:1,gres/craynetwork:2", (("", 1),), "craynetwork"),
        ("", (), ""),
    ],
)
def test_gpus_are_counted_by_type(text: str, kinds: tuple[tuple[str, int], ...], strange: str) -> None:
    found = job(tres_per_node=text).gpus_per_node
    assert found.by_kind == kinds
    assert found.strange == strange
    assert found.mixed == (len(kinds) > 1)


def test_gpus_in_use() -> None:
    assert machine(gres_used="gpu:a100:3(IDX:0-1,3)").used_gpus == (0, 1, 3)
    assert machine(gres_used="gpu:(null):1(IDX:2)").used_gpus == (2,)
    assert machine(gres_used="gpu:a100:0(IDX:N/A),shard:a100:2(0/4,2/4)").used_gpus == (1,)
    mixed = machine(gres="gpu:a100:2(S:0-1),gpu:v100:2")
    assert (mixed.gpu_kind, mixed.gpus) == ("", 4)


@pytest.mark.parametrize(
    ("state", "flags", "usable"),
    [
        ("idle", ["POWERED_DOWN"], True),
        ("mixed", ["POWERING_UP"], True),
        ("idle", ["POWERING_DOWN"], False),
        ("idle", ["NOT_RESPONDING"], False),
        (["IDLE", "NO_RESPOND"], [], False),
        ("idle", ["DRAIN"], False),
        ("down", [], False),
        (["IDLE", "CLOUD"], [], True),
    ],
)
def test_which_nodes_slurm_would_use(state: Any, flags: list[str], usable: bool) -> None:
    assert machine(state=state, state_flags=flags).usable == usable


def test_jobs_that_configure_or_complete_hold_their_nodes() -> None:
    assert job(job_state=["RUNNING", "CONFIGURING"]).state == "RUNNING"
    assert job(job_state="CONFIGURING").state == "RUNNING"
    assert job(job_state=["COMPLETED", "COMPLETING"]).state == "COMPLETING"
    assert job(job_state=["COMPLETED"]).state == "COMPLETED"


def test_listed_cores_count_with_their_threads() -> None:
    held = {"nodes": "n1", "allocated_nodes": [{"nodename": "n1", "sockets": {"0": {"cores": {"0": "allocated", "1": "allocated"}}}}]}
    one = job(job_state="RUNNING", nodes="n1", cpus=4, job_resources=held)
    assert one.allocations[0].cores == 4


def test_site_factors_may_be_shifted_or_missing() -> None:
    assert job(site_factor=2**31 + 5).site_factor == 5
    assert job(site_factor=2**31 - 5).site_factor == -5
    assert job(site_factor=None).site_factor is None


def test_names_may_hold_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: real(["printf", r"caf\351"], **options))
    assert SlurmCommands().read("squeue") == "caf\ufffd"


def test_refusals_are_complaints_and_changes_go_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[str, ...], int]] = []

    def run(self: SlurmCommands, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        calls.append((command, (stdin or "").count("update ")))
        return subprocess.CompletedProcess(command, 1, "scontrol: ", "" if len(calls) == 1 else "Invalid job id specified")

    monkeypatch.setattr(SlurmCommands, "run", run)
    found = SlurmCommands().update([f"JobId={k}" for k in range(60)], lambda: len(calls) < 2)
    assert calls == [(("scontrol",), 25), (("scontrol",), 25)]
    assert found == ["scontrol failed with code 1", "Invalid job id specified", "stopped before 10 of 60 changes"]


def test_the_clock_follows_slurm_only_as_long_as_a_job_says_so() -> None:
    clock = ServerClock()
    plain = clock.now()
    ahead = job(submit_time=int(plain) + 1000)
    assert clock.now([ahead]) >= plain + 999
    assert abs(clock.now([job(8, submit_time=NOW)]) - plain) < 5


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"job_resources": {"nodes": {"allocation": [[]]}}, "nodes": "n1"}, "job 5: is not understood: 'list' object"),
        ({"job_resources": {"nodes": {"allocation": [{"name": "n1", "memory": {"allocated": 2**63}}]}}, "nodes": "n1"}, "MiB of n1"),
        ({"job_resources": {}, "nodes": "n1", "cpus": 2**40}, "it holds 1099511627776 cores"),
        ({"job_resources": {}, "nodes": "n1", "gres_detail": ["gpu:3(IDX:0-99999999999)"]}, "no node has a GPU 99999999999"),
        ({"site_factor": float("inf")}, "cannot convert float infinity"),
        ({"submit_time": 2**70}, "submit_time is 1180591620717411303424"),
        ({"array_task_id": "x" * 9000, "array_job_id": [1]}, ""),
    ],
)
def test_damaged_jobs_are_named(fields: dict[str, Any], problem: str) -> None:
    if not problem:  # what cannot be a number is as good as missing
        assert len(read_jobs(json.dumps({"jobs": [row(5, **fields)]}))) == 1
        return
    with pytest.raises(InputError) as raised:
        read_jobs(json.dumps({"jobs": [row(5, **fields)]}))
    assert "squeue --json, job 5" in str(raised.value)
    assert problem in str(raised.value)


def test_users_may_ask_for_any_begin_time() -> None:
    [job] = read_jobs(json.dumps({"jobs": [row(5, eligible_time=2**62)]}))
    assert begins_later(job, 0.0)


@pytest.mark.parametrize("fields", [{"gres": "gpu:a100:999999999999"}, {"gres_used": "gpu:a100:1(IDX:0-999999999)"}])
def test_damaged_nodes_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="node 'n1': is not understood"):
        read_nodes(json.dumps({"nodes": [node("n1", **fields)]}))


def test_a_damaged_sprio_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmCommands, "read", lambda self, *command: "5 nan\n")
    with pytest.raises(InputError, match="sprio"):
        SlurmCommands().site_factors()
