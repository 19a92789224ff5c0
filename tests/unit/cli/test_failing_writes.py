"""A full disk, a quota, a folder that cannot be written and a file that may not be read: one line, exit code 2, nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model_setup import make_model
from queuewise.agents.recording import TensorBoard
from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.evaluation.replay_files import write_replay
from queuewise.policies import simulate
from queuewise.policies.found_rules import FILE, FoundRule, rule_text
from queuewise.policies.rule_family import PARAMS
from queuewise.runs import append_text, replacing, write_text
from queuewise.workload import load_workload

LOG = "; MaxProcs: 8\n" + "".join(f"{j} {60 * j} 5 {30 + j % 7 * 40} 1 -1 -1 1 200 -1 1 {j % 3} 1 -1 1 -1 -1 -1\n" for j in range(1, 300))


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file can become larger than this, as with a quota: a writer in any language gets an error of the system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG, encoding="utf-8")
    return path


TRAIN = (
    "--workload", "bursty", "--cluster", "2x2:V100-16", "--episode-jobs", "20", "--frames", "512", "--task.window", "8",
    "--network.width", "8", "--ppo.num-envs", "4", "--ppo.steps", "32", "--ppo.minibatch", "64", "--ppo.workers", "1", "--val-windows", "2",
    "--report-windows", "2", "--eval-every", "2", "--checkpoint-every", "1",
)  # fmt: skip
LEARN = (
    "learn", "lublin", "--jobs", "900", "--split", "0.4,0.3,0.3", "--cluster", "flat:256", "--estimates", "oracle", "--budget", "1s",
)  # fmt: skip
REPLAY = ("--workload", "{log}", "--cluster", "flat:8", "--policy", "fcfs", "--policy", "sjf")
COMMANDS = {
    "simulate": ("simulate", *REPLAY, "--out", "{out}/run"),
    "evaluate": ("evaluate", *REPLAY, "--protocol", "replay", "--out", "{out}/run"),
    "validate": ("validate", "{log}", "--cluster", "flat:8", "--out", "{out}/run"),
    "convert": ("workload", "convert", "{log}", "--out", "{out}/log.csv"),
    "convert to Parquet": ("workload", "convert", "{log}", "--out", "{out}/log.parquet"),
    "fit": ("workload", "fit", "{log}", "--out", "{out}/model.toml"),
    "plot": ("workload", "info", "{log}", "--plot", "{out}/figure.png"),
    "new-policy": ("new-policy", "mine", "--folder", "{out}"),
    "clusters from-log": ("clusters", "from-log", "{log}", "--out", "{out}/cluster.toml"),
    "predict": ("predict", "{log}", "--cluster", "flat:8", "--split", "0.3,0.3,0.4", "--plot", "{out}/figure.png"),
    "learn": (*LEARN, "--out", "{out}/run"),
    "train": ("train", *TRAIN, "--out", "{out}/run"),
    "report": ("report", "{run}", "--exports", "none"),
    "export of a rule": ("export", "{rule}", "--out", "{out}/rule.py"),
    "export of a network": ("export", "{model}", "--out", "{out}/policy.onnx"),
}


def made(command: str, log: Path, home: Path) -> dict[str, str]:
    """What the command needs beside the log."""
    places = {name: home / name for name in ("run", "rule", "model")}
    if command == "report":
        assert main(["simulate", "--workload", str(log), "--cluster", "flat:8", "--policy", "fcfs", "--out", str(places["run"])]) == 0
    if command == "export of a rule":
        places["rule"].mkdir()
        (places["rule"] / FILE).write_text(rule_text(FoundRule(tuple(PARAMS)), {}), encoding="utf-8")
    if command == "export of a network":
        make_model(places["model"], "kernel")
    return {name: str(path) for name, path in places.items()}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    command: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    places = made(command, log, tmp_path)
    arguments = [part.format(log=log, out=out, **places) for part in COMMANDS[command]]
    before = contents(tmp_path)
    capsys.readouterr()
    with small_files(200):
        code = main(arguments)
    assert {path: content for path, content in contents(tmp_path).items() if path in before} == before
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("error:", "Traceback"))]
    assert (code, len(errors)) == (2, 1)
    assert errors[0].endswith("cannot be written: File too large")
    left = [path for path in out.rglob("*") if path.is_file()]
    assert all(path.stat().st_size < 200 and not path.name.endswith(".part") for path in left), left
    assert not (out / "run" / "summary.json").exists()


def test_a_training_without_space_for_checkpoints_can_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    with small_files(4000):  # enough for the settings and some metrics
        assert main(["train", *TRAIN, "--out", str(run)]) == 2
    errors = capsys.readouterr().err.splitlines()[-2:]
    assert errors[0].endswith("cannot be written: File too large")
    assert errors[1].startswith("hint: free some space")
    assert not list(run.rglob("*.part"))
    more = ["--resume", str(run)] if (run / "config.toml").exists() else [*TRAIN, "--out", str(run)]
    assert main(["train", *more]) == 0
    assert (run / "summary.json").exists()


def test_a_search_without_space_for_its_journal_can_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    with small_files(1200):  # enough for a generation or two
        assert main([*LEARN, "--out", str(run)]) == 2
    assert "cannot be written: File too large" in capsys.readouterr().err.splitlines()[-2]
    lines = (run / "search.jsonl").read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert main([*LEARN, "--out", str(run)]) == 0
    assert (run / "search.jsonl").read_text().splitlines()[: len(lines)] == lines
    assert main([*LEARN, "--out", str(run)]) == 0  # a search that goes on has another rule, which is judged again


def test_a_line_is_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_text(path, "one\n")
    with small_files(6), pytest.raises(InputError, match="lines: cannot be written: File too large"):
        append_text(path, "two\n")
    assert path.read_text() == "one\n"
    append_text(path, "three\n")
    assert path.read_text() == "one\nthree\n"


def test_tables_that_cannot_be_written_are_one_line(log: Path, tmp_path: Path) -> None:
    """At whatever place of the file the space ends."""
    schedule = simulate(load_workload(log).workload, load_cluster("flat:8"), "fcfs")
    write_replay(tmp_path / "whole", schedule)
    size = (tmp_path / "whole" / "jobs.parquet").stat().st_size
    for most in range(0, size, 97):
        with small_files(most), pytest.raises(InputError, match=r"jobs\.parquet: cannot be written: File too large"):
            write_replay(tmp_path / "run", schedule)
    assert list((tmp_path / "run").iterdir()) == []


def test_files_of_tensorboard_that_cannot_be_written_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def write_rows() -> None:
        sink = TensorBoard(tmp_path, {}, 0)
        try:
            for number in range(100):
                sink.write({"frames": number, "loss": 1.0})
        finally:
            sink.close()

    with small_files(300), pytest.raises(InputError, match="tensorboard: cannot be written: File too large"):
        write_rows()
    assert "Traceback" not in capfd.readouterr().err


def test_models_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    with small_files(2000), pytest.raises(InputError, match=r"best\.safetensors: cannot be written: File too large"):
        make_model(tmp_path, "kernel")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
def test_files_get_the_permissions_of_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        make_model(tmp_path, "kernel")
        write_text(tmp_path / "text", "x")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("best.safetensors", "best.json", "text"), 0o666 & ~umask)


def test_devices_are_not_replaced_by_files(tmp_path: Path) -> None:
    """To replace a device by a file, as root can, would harm the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"), replacing(tmp_path / "pipe"):
        raise AssertionError("nothing is to be written")
    assert (tmp_path / "pipe").is_fifo()


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "new"


def test_a_folder_that_cannot_be_created_is_one_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part.format(log=log, out="/proc/nowhere") for part in COMMANDS["simulate"]]
    assert main(arguments) == 2
    assert "error: /proc/nowhere/run: cannot be created" in capsys.readouterr().err


def test_output_that_cannot_be_written_is_one_line(log: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "queuewise", "policies", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: no space left on device\nhint: free some space, or choose another folder\n"


@pytest.mark.parametrize("streams", [("stderr",), ("stdout", "stderr")])
@pytest.mark.parametrize("arguments", [["policies"], ["simulate", "--workload", "nowhere.swf", "--policy", "fcfs"]])
def test_errors_that_cannot_be_written_keep_their_exit_code(streams: tuple[str, ...], arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        places = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | dict.fromkeys(streams, full)
        done = subprocess.run([sys.executable, "-m", "queuewise", *arguments], check=False, **places)  # type: ignore[call-overload]
    assert done.returncode == (0 if arguments == ["policies"] and "stdout" not in streams else 2)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root. The temporary folders of a test belong to root and are closed to others."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.parametrize("name", ["log.swf", "run", "cluster.toml", "best.safetensors"])
def test_what_may_not_be_read_says_so(name: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.toml").write_text("", encoding="utf-8")
    (tmp_path / "best.safetensors").write_bytes(b"x" * 100)
    tmp_path.chmod(0o700)
    path = tmp_path / name
    commands = {
        "log.swf": ("workload", "info", str(path)),
        "run": ("report", str(path)),
        "cluster.toml": ("simulate", "--workload", "bursty", "--jobs", "5", "--cluster", str(path), "--policy", "fcfs"),
        "best.safetensors": ("export", str(path), "--out", "/tmp/x.onnx"),
    }
    with as_nobody():
        assert main(commands[name]) == 2
    errors = capsys.readouterr().err
    assert "ermission denied" in errors
    assert "no such" not in errors.lower()
    assert "Traceback" not in errors


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_model_that_may_not_be_read_in_an_open_folder_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's are closed
        Path(folder).chmod(0o755)
        path = Path(folder) / "best.safetensors"
        path.write_bytes(b"x" * 100)
        path.chmod(0)
        with as_nobody():
            assert main(["simulate", "--workload", "bursty", "--jobs", "5", "--cluster", "flat:8", "--policy", f"model:{path}"]) == 2
    assert f"error: {path}: cannot be read: permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_streams_that_are_closed_are_no_error(closed: str, tmp_path: Path) -> None:
    number = {"stdout": 1, "stderr": 2}[closed]
    command = f"exec {sys.executable} -m queuewise policies {number}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("fcfs" in done.stdout) == (closed == "stderr")
