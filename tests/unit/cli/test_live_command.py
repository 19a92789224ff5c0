"""`queuewise live` and `queuewise slurm install`, with programs in place of Slurm's."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from fake_slurm import row
from queuewise.cli import main
from queuewise.serve.audit_log import AuditLog, read_audit

HOME = "QUEUEWISE_LIVE_HOME"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is the whole PATH; scontrol notes there what it is told."""
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_off_turns_agents_off_and_on_undoes_it(commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, state in (("status", "on"), ("off", "off"), ("off", "off"), ("on", "on"), ("on", "on")):
        assert main(["live", command]) == 0
        said = capsys.readouterr()
        assert main(["live", "status"]) == 0
        assert capsys.readouterr().out == f"{state}\n"
    assert "it was not off" in said.err


def test_off_gives_the_jobs_of_an_agent_that_is_gone_back_to_slurm(commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(1), row(2, ours=False), row(3, admin_comment="queuewise placed"), row(4, admin_comment="queuewise released")]
    (commands / "jobs.json").write_text(json.dumps({"jobs": rows}))
    install(commands, "squeue", f'while read -r line; do echo "$line"; done < {commands}/jobs.json; echo "$line"')
    install(commands, "scontrol", f'while read -r line; do echo "$line" >> {commands}/told; done')
    assert main(["live", "off", "--reason", "maintenance"]) == 0
    assert "2 jobs were given back to Slurm" in capsys.readouterr().err
    told = (commands / "told").read_text().splitlines()
    assert [line.split()[1] for line in told if line.startswith("update")] == ["JobId=1", "JobId=3"]
    assert "ReqNodeList=" in told[1]
    assert "ReqNodeList=" not in told[0]


def test_off_works_while_slurm_does_not_answer(commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(commands, "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert main(["live", "off"]) == 0
    assert "start by themselves when their grace ends" in capsys.readouterr().err
    assert main(["live", "status"]) == 0
    assert capsys.readouterr().out == "off\n"


def test_install_shows_and_applies_and_uninstall_undoes_it(tmp_path: Path, commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf, plugin = tmp_path / "slurm.conf", tmp_path / "job_submit.lua"
    conf.write_text("ClusterName=x\nPriorityType=priority/basic\n")
    before = conf.read_bytes()
    assert main(["slurm", "install", "--conf", str(conf), "--grace", "120"]) == 0
    shown = capsys.readouterr().out
    assert "+JobSubmitPlugins=lua" in shown
    assert "os.time() + 120" in shown
    assert conf.read_bytes() == before
    assert not plugin.exists()
    assert main(["slurm", "install", "--conf", str(conf), "--grace", "120", "--apply"]) == 0
    assert plugin.exists()
    assert conf.read_bytes() != before
    capsys.readouterr()
    assert main(["slurm", "uninstall", "--conf", str(conf)]) == 0
    assert "-JobSubmitPlugins=lua" in capsys.readouterr().out
    assert plugin.exists()
    assert main(["slurm", "uninstall", "--conf", str(conf), "--apply"]) == 0
    assert conf.read_bytes() == before
    assert not plugin.exists()


def write_entries(path: Path, program: int) -> None:
    log = AuditLog(path, rotate_bytes=4_000, kept=100)
    for number in range(100):
        log.write({"program": program, "number": number, "text": "x" * (number % 7 * 40)})


def test_programs_that_share_an_audit_log_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=write_entries, args=(path, program)) for program in range(3)]
    for one in programs:
        one.start()
    for one in programs:
        one.join()
        assert one.exitcode == 0
    files = [path, *(old for old in tmp_path.iterdir() if old.suffix[1:].isdecimal())]
    assert len(files) > 5
    found = [(entry["program"], entry["number"]) for entry in read_audit(path)]  # with the files it was rotated to
    assert sorted(found) == [(program, number) for program in range(3) for number in range(100)]
