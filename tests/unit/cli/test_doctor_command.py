"""`queuewise doctor` and `queuewise completion`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from queuewise.cli import COMMANDS, doctor, main


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "onnx" else real(name))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["doctor", "--json"]) == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["numba"]["state"] == "ok"
    assert found["extra export"]["state"] == "without onnx"
    assert found["extra export"]["remedy"] == "pip install 'queuewise[export]'"
    assert found["chromium"] == {
        "what": "chromium", "found": "not found", "state": "missing",
        "remedy": "only needed for tests of report.html in a browser: apt-get install chromium",
    }  # fmt: skip
    for program in ("sacct", "scontrol", "squeue", "sinfo", "slurmctld"):
        assert found[program]["state"] == "missing"
        assert ": apt-get install slurm" in found[program]["remedy"]
    assert found["cache"]["found"].endswith("MiB")
    assert main(["doctor"]) == 0
    assert "extra export: pip install 'queuewise[export]'" in capsys.readouterr().out


def test_doctor_fails_if_something_needed_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "numba" else real(name))
    assert main(["doctor", "--json"]) == 2
    (numba,) = (row for row in json.loads(capsys.readouterr().out) if row["what"] == "numba")
    assert numba["state"] == "broken"
    assert numba["remedy"]


def complete(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    program = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _queuewise; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=script.parent)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "complete.sh"
    script.write_text(capsys.readouterr().out)
    assert set(COMMANDS) <= set(complete(script, "queuewise", ""))
    assert complete(script, "queuewise", "sim") == ["simulate"]
    assert {"--policy", "--policy-x"} & set(complete(script, "queuewise", "simulate", "--pol")) == {"--policy"}
    assert "--drain" in complete(script, "queuewise", "simulate", "--")
    assert "from-log" in complete(script, "queuewise", "clusters", "from")
    assert "sjf" in complete(script, "queuewise", "simulate", "--policy", "sj")
    assert complete(script, "queuewise", "train", "--preset", "quic") == ["quick"]
    assert "--ppo.gamma" in complete(script, "queuewise", "train", "--ppo.")
    assert complete(script, "queuewise", "train", "--algo", "sa") == ["sac"]


def test_zsh_gets_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "fish"]) == 2
    assert "one of bash, zsh" in capsys.readouterr().err
