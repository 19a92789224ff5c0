"""Twenty jobs on a real Slurm: read, decided, started where and in the order that was decided, and recorded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from queuewise.errors import InputError
from queuewise.serve.audit_log import replay_audit
from queuewise.serve.local_slurm import LocalSlurm
from slurm_bench import Starts


def test_twenty_jobs_are_started_as_decided(start_slurm: Starts) -> None:
    bench = start_slurm()
    ids = bench.submit_many(20)
    assert bench.states(ids) == {"PENDING"}
    agent = bench.agent()
    told = bench.drive(agent, ids, seconds=300)  # the first look may compile
    rows = bench.rows()
    assert {job: tuple(rows[job]["nodes"].split(",")) for job in ids} == dict(told)
    assert bench.order_of_starts() == [job for job, _ in told]
    assert agent.audit is not None
    again = list(replay_audit(agent.audit.path))
    assert again
    assert all(one.same for one in again)


def test_jobs_start_in_a_folder_whose_path_is_too_long_for_sockets(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 20)
    with LocalSlurm(home) as slurm:
        job = slurm.submit(0.1, "-N1", "--gres=gpu:a100:1", "--mem=100", "--time=5")
        deadline = time.monotonic() + 60
        while (found := slurm.run("squeue", "--states=all", "-h", "-o", "%T %r", f"--jobs={job}").strip()) != "COMPLETED None":
            assert "held" not in found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


def test_a_folder_for_sockets_with_too_long_a_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(InputError, match="paths of sockets would have"), LocalSlurm(tmp_path / "slurm"):
        pass
    assert list(folder.iterdir()) == []
