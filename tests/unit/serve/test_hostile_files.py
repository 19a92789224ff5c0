"""Files that agents and the service read or edit: whatever is in them, the answer is one line, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz.broken_snapshots import SCRIPT, SHAPE, SNAPSHOT
from queuewise.cli import main
from queuewise.errors import InputError
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.audit_log import AuditLog, read_audit, replay_audit
from queuewise.serve.runtime_history import RuntimeHistory
from queuewise.serve.slurm_install import installation, removal
from queuewise.serve.start_times import with_script

UNUSED = {
    "index": 0, "state": "up", "free_gpus": [0, 1, 2, 3], "free_cpu_milli": 16_000, "free_mem_mib": 64_000,
    "shape": SHAPE | {"partitions": []},
}  # fmt: skip


def test_line_ends_of_slurms_files_are_restored(tmp_path: Path) -> None:
    conf, plugin = tmp_path / "slurm.conf", tmp_path / "job_submit.lua"
    conf.write_bytes(b"ClusterName=a\r\nPriorityType=priority/basic\r\nSlurmctldHost=b\n")
    plugin.write_bytes(b"-- ours\r\nreturn slurm.SUCCESS\r\n")
    before = conf.read_bytes(), plugin.read_bytes()
    for change in installation(conf):
        change.apply()
    assert (conf.read_bytes(), plugin.read_bytes()) != before
    for change in removal(conf):
        change.apply()
    assert (conf.read_bytes(), plugin.read_bytes()) == before


def test_files_of_slurm_that_are_no_text_are_not_edited(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_bytes("# Schlüssel\n".encode("latin-1"))
    for change in (installation, removal):
        with pytest.raises(InputError, match="is not UTF-8 text"):
            change(conf)
    assert conf.read_bytes() == "# Schlüssel\n".encode("latin-1")


@pytest.mark.parametrize("name", ['a"] = os.execute("id"), ["', "a b", "", "a\n"])
def test_names_of_partitions_do_not_become_programs(name: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=a\n")
    with pytest.raises(InputError, match="cannot be the name of a partition"):
        installation(tmp_path / "slurm.conf", partitions=("gpu", name))


@pytest.mark.parametrize("content", [b"[" * 200_000, b"}", b"\xff\n", b"null\n", b'{"version": 99}\n'])
def test_a_damaged_audit_log_names_the_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_bytes(b'{"version": 1}\n' + content)
    with pytest.raises(InputError, match=r"audit\.jsonl:2: is "):
        list(read_audit(tmp_path / "audit.jsonl"))


def entry(**changes: Any) -> dict[str, Any]:
    known = {"version": 1, "policy": "fcfs", "max_wait": None, "decision": {}, "snapshot": SNAPSHOT} | changes
    return {name: value for name, value in known.items() if value is not ...}


@pytest.mark.parametrize(
    "changes",
    [{"policy": ["fcfs"]}, {"policy": ...}, {"max_wait": {}}, {"decision": ...}, {"fairness_floor": "x"}, {"fairness_floor": 7}],
)
def test_a_damaged_decision_names_the_line_and_the_field(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_text(json.dumps(entry()) + "\n" + json.dumps(entry(**changes)) + "\n")
    (name,) = changes
    with pytest.raises(InputError, match=rf"audit\.jsonl:2: is no entry of an audit log: {name} is "):
        list(replay_audit(tmp_path / "audit.jsonl"))


def test_programs_that_an_audit_log_names_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from pathlib import Path\nPath(__file__ + '.ran').touch()\ndef score(job):\n    return job.submit\n")
    (tmp_path / "audit.jsonl").write_text(json.dumps(entry(policy=f"{tmp_path / 'mine.py'}:score")) + "\n")
    with pytest.raises(InputError, match="the log names a program"):
        list(replay_audit(tmp_path / "audit.jsonl"))
    assert not (tmp_path / "mine.py.ran").exists()
    assert len(list(replay_audit(tmp_path / "audit.jsonl", run_files=True))) == 1
    assert (tmp_path / "mine.py.ran").exists()


def test_a_home_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("QUEUEWISE_LIVE_HOME", "/proc/queuewise")
    assert main(["live", "off"]) == 2
    assert capsys.readouterr().err.splitlines()[-2].endswith("cannot be created: No such file or directory")


@pytest.mark.parametrize("script", [False, True])
def test_ids_may_be_numbers(script: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbered = re.sub(r'"job_id": "(\d)"', r'"job_id": \1', json.dumps(SNAPSHOT))
    (tmp_path / "snapshot.json").write_text(numbered)
    (tmp_path / "job.sh").write_bytes(SCRIPT)
    job = str(tmp_path / "job.sh") if script else "7"
    assert main(["slurm", "when", job, "--draws", "2", "--json", "--snapshot", str(tmp_path / "snapshot.json")]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == (9 if script else 7)


def test_nodes_may_be_in_no_partition() -> None:
    script = SCRIPT.decode().replace("#SBATCH -p main\n", "")
    found, name = with_script(
        Snapshot.from_plain(SNAPSHOT | {"queue": [], "running": [], "nodes": [UNUSED]}), script, "ann", RuntimeHistory(), where="s"
    )
    assert [(one.job.job_id, one.job.partition) for one in found.queue] == [(name, None)]


def test_an_audit_log_in_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be created"):
        AuditLog(tmp_path / "file" / "audit.jsonl")


def test_an_audit_log_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit.jsonl")
    with pytest.raises(InputError, match="is not a regular file"):
        AuditLog(tmp_path / "audit.jsonl")
    with pytest.raises(InputError, match="is not a regular file"):
        list(read_audit(tmp_path / "audit.jsonl"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("make", "mode", "message"),
    [
        (os.mkfifo, 0o600, "is not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe"), 0o600, "is not ASCII text"),
        (Path.touch, 0o600, "holds no token"),
        (lambda path: path.write_text("secret"), 0o604, "can be read or written by everybody on this machine"),
    ],
)
def test_a_file_without_a_secret_token_is_refused(
    make: Callable[[Path], None], mode: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "token")
    (tmp_path / "token").chmod(mode)
    assert main(["serve", "--policy", "fcfs", "--port", "0", "--token-file", str(tmp_path / "token")]) == 2
    assert f"error: {tmp_path / 'token'}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "99999999999999999999"])
def test_ports_that_do_not_exist_are_refused(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    assert main(["serve", "--policy", "fcfs", "--port", port, "--token-file", str(tmp_path / "token")]) == 2
    assert f"error: there is no port {port}" in capsys.readouterr().err


def test_a_line_that_holds_no_decision_is_not_replayed_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text('{"version": 1}\n')
    assert main(["live", "replay", str(tmp_path / "log")]) == 0
    assert main(["live", "replay", str(tmp_path / "log"), "--entry", "2"]) == 2
    assert "has no decision on line 2" in capsys.readouterr().err


def test_a_service_whose_audit_log_cannot_be_written_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--policy", "fcfs", "--socket", str(tmp_path / "q"), "--audit", "/proc/self/audit"]) == 2
    assert capsys.readouterr().err.splitlines()[-2].startswith("error: /proc/self/audit: cannot be written: ")
    assert not (tmp_path / "q").exists()
