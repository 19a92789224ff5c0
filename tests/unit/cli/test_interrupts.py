"""Ctrl-C ends commands, training soon and with everything kept; terminals without Unicode print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from queuewise import __main__
from queuewise.agents.checkpoint import read_state
from queuewise.workload.models import generate
from queuewise.workload.writers import write_workload

DEAF = """
import hashlib, signal, sys
from queuewise.cli.interrupts import ending_soon
with ending_soon({grace}):
    print(flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)  # minutes in compiled code, which sees no interrupt
"""


def interrupted(grace: str, signals: int, program: str = DEAF) -> tuple[float, int, str]:
    """Seconds until a process ends that is deep in compiled code, its exit code, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", program.format(grace=grace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.3)
    began = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    errors = process.communicate(timeout=30)[1]
    return time.monotonic() - began, process.returncode, errors


CALLED_BACK = """
import ctypes, time
from queuewise.cli.interrupts import ending_soon

def wait():
    print(flush=True)
    time.sleep(60)

with ending_soon({grace}):
    ctypes.CFUNCTYPE(None)(wait)()  # C code calls Python code
    for _ in range(600):
        time.sleep(0.1)
"""


def crowded() -> float:
    """How many times as long things take as on an idle machine: wall time ÷ CPU time of some work, at least 1."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < 0.2:
        pass
    return max(1.0, (time.monotonic() - wall) / 0.2)


def test_a_command_with_a_limit_ends_in_time_whatever_it_is_doing() -> None:
    seconds, code, errors = interrupted("1.0", 1)
    assert (code, errors) == (130, "interrupted\n")
    assert 0.9 < seconds < 5


def test_a_second_interrupt_ends_at_once() -> None:
    seconds, code, errors = interrupted("60.0", 2)
    assert (code, errors) == (130, "interrupted\n")
    assert seconds < 3


def test_an_interrupt_in_a_function_that_c_calls_is_not_lost() -> None:
    seconds, code, errors = interrupted("30.0", 1, CALLED_BACK)
    assert (code, errors) == (130, "interrupted\n")
    assert seconds < 10


def test_an_interrupt_while_modules_are_imported_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "queuewise.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "queuewise.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert __main__.main() == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_training_ends_soon_and_keeps_its_checkpoints(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "queuewise", "train", "--workload", "bursty", "--cluster", "2x4:V100-16", "--frames", "100000000",
        "--preset", "quick", "--checkpoint-every", "1", "--baselines", "fcfs", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("run/seed-0/checkpoints/*.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.0)
    slowness = crowded()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
    errors = process.communicate(timeout=60)[1]
    assert time.monotonic() - began < 3.0 * slowness
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.rstrip().endswith("interrupted")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
    last = max((tmp_path / "run" / "seed-0" / "checkpoints").glob("*.safetensors"))
    assert read_state(last)[1]["frames"] > 0
    assert not list(tmp_path.rglob(".*.part"))


LONG = {  # commands that would take minutes
    "learn": ("learn", "{log}", "--cluster", "flat:256", "--estimates", "oracle", "--budget", "1h", "--out", "{out}"),
    "evaluate": ("evaluate", "--workload", "lublin", "--jobs", "1000000", "--windows", "2", "--window-jobs", "500000", "--cluster",
                 "flat:256", "--policy", "fcfs+conservative", "--policy", "sjf+conservative", "--out", "{out}"),
    "suite": ("suite", "--policy", "fcfs+conservative", "--policy", "sjf+conservative"),
    "predict": ("predict", "{log}", "--cluster", "flat:256"),
}  # fmt: skip


@pytest.fixture
def long_log(command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "log.swf"
    write_workload(generate("lublin", {"predict": 400_000}.get(command, 60_000), 2), path)
    return path


@pytest.mark.parametrize(("command", "times"), [*((command, 1) for command in LONG), ("learn", 2)])
def test_long_commands_end_soon_and_keep_what_they_have(command: str, times: int, long_log: Path, tmp_path: Path) -> None:
    arguments = [part.format(log=long_log, out=tmp_path / "run") for part in LONG[command]]
    process = subprocess.Popen([sys.executable, "-m", "queuewise", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(3.0 * crowded())
    assert process.poll() is None, process.communicate()
    slowness = crowded()
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    errors = process.communicate(timeout=60)[1]
    assert time.monotonic() - began < (3.0 if times == 1 else 1.0) * slowness
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.rstrip().endswith("interrupted")
    for path in tmp_path.rglob("*.parquet"):
        pl.read_parquet(path)
    for path in tmp_path.rglob("*.json"):
        json.loads(path.read_text())


@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_terminals_that_cannot_show_a_character_show_a_question_mark(settings: dict[str, str]) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LC_")} | settings
    for arguments in (["policies"], ["clusters"], ["simulate", "--workload", "größe.swf", "--policy", "x"]):
        done = subprocess.run([sys.executable, "-m", "queuewise", *arguments], env=environment, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        assert (done.stdout + done.stderr).isascii()
        assert done.returncode == (2 if arguments[0] == "simulate" else 0)
