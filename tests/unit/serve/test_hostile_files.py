"""Files that agents and the service read or edit: whatever is in them, the answer is one line, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from queuewise.cli import main
from queuewise.errors import InputError
from queuewise.serve.audit_log import AuditLog, read_audit
from queuewise.serve.slurm_install import installation, removal


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
    ("make", "message"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not ASCII text"),
        (Path.touch, "holds no token"),
    ],
)
def test_a_file_without_a_token_is_refused(
    make: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "token")
    assert main(["serve", "--policy", "fcfs", "--port", "0", "--token-file", str(tmp_path / "token")]) == 2
    assert f"error: {tmp_path / 'token'}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "99999999999999999999"])
def test_ports_that_do_not_exist_are_refused(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("secret")
    assert main(["serve", "--policy", "fcfs", "--port", port, "--token-file", str(tmp_path / "token")]) == 2
    assert f"error: there is no port {port}" in capsys.readouterr().err
