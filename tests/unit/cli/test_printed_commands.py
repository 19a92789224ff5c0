"""Every command and every piece of Python that the README and the pages print works, in a folder with small files of the names they use.

Commands in blocks are run as printed, those that would take long with a few more options (`LESS`), which is all that is changed. Scripts
and benchmarks read their arguments to the end. Of commands within sentences the options are looked up.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import linecache
import os
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_slurm import FakeSlurm, row
from queuewise import cli
from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.policies.simulation import Simulation
from queuewise.runs import LAST_FILE
from queuewise.serve.slurm_control import SlurmCommands
from queuewise.workload.models import generate
from queuewise.workload.writers import write_workload

REPOSITORY = Path(__file__).resolve().parents[3]
DOCS = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS]
PARTS_OF_MODULES = {"CONTRIBUTING.md"}  # its Python is not run but added to a file
TRAINING = {"--ppo.num-envs": "4", "--ppo.steps": "16", "--ppo.minibatch": "32", "--episode-jobs": "20", "--val-windows": "2"} | {
    "--report-windows": "2", "--frames": "128", "--network.width": "16", "--task.window": "8", "--ppo.imitate-frames": "64",
    "--baselines": "fcfs", "--ppo.workers": "1",
}  # fmt: skip
LESS: dict[str, dict[str, str]] = {  # command -> what is added so that it takes seconds; it replaces what the page says
    "learn": {"--budget": "5s", "--jobs": "1500"},
    "train": TRAINING,
    "bench": {"--jobs": "2000", "--nodes": "2"},
    "bench-nets": {"--widths": "16"},
}
SLOW = {"docs/training.md", "docs/tutorials/rl.md", "docs/performance.md"}  # they train and measure: a minute each, even with less
MARKS = {"grace", "placed", "released"}  # of jobs, such as `queuewise grace 300`: no commands
OTHER_PROGRAMS = {"sacct", "scontrol", "git", "source", "pip"}  # theirs are not ours to try
SACCT = "JobID,User,Account,Partition,State,Submit,Eligible,Start,End,Timelimit,NNodes,AllocTRES,NodeList"
TREE = re.compile(r"[ |]|[\w./ ]+/( |$)|class ")  # lines of trees of files, tables and pieces of classes
DIGEST = re.compile(r"\b[0-9a-f]{40,64}\b…?")


def blocks(page: str, language: str) -> Iterator[str]:
    pieces = (REPOSITORY / page).read_text(encoding="utf-8").split("```")[1::2]
    return (piece.removeprefix(language) for piece in pieces if piece.partition("\n")[0] == language)


def lines(page: str) -> Iterator[list[str]]:
    """The words of each line of the blocks of commands; what is behind # is a comment, and > FILE the shell's."""
    for block in blocks(page, ""):
        for line in filter(None, block.replace("\\\n", " ").splitlines()):
            if not TREE.match(line):
                words = shlex.split(line.partition(" > ")[0], comments=True)
                yield from [words] if words else []


def printed(page: str) -> list[list[str]]:
    """The arguments of each `queuewise` line."""
    return [words[1:] for words in lines(page) if words[0] == "queuewise"]


def shortened(arguments: list[str]) -> list[str]:
    """The same with less to do."""
    name, *rest = arguments
    less = {} if {"--resume", "--show-config"} & set(rest) else LESS.get(name, {})
    if any(word.endswith(".csv.gz") for word in rest):  # a published log
        less = {"--jobs": "20000"}
    if any(word.startswith(("plan:", "portfolio:")) for word in rest):
        less = {"--jobs": "100"}
    kept, skipping = [name], False
    for word in rest:
        if word.startswith("--"):
            skipping = word in less
        if not skipping:
            kept.append(word)
    return [*kept, *(word for option in less.items() for word in option)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs and runs that the pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    jobs = generate("lublin", 4_000, seed=1)
    write_workload(jobs.replace(requested=2 * jobs.runtime), folder / "log.swf")
    (folder / "log.swf").write_text("; MaxProcs: 256\n" + (folder / "log.swf").read_text())
    write_workload(jobs.take(slice(0, 2_000)), folder / "my_log.swf.gz")
    for name, text in zip(("conditions.toml", "reserved.toml"), blocks("docs/conditions.md", "toml"), strict=True):
        (folder / name).write_text(text)
    (folder / "mine.csv").write_text(
        "queued_at,began,finished,cards,owner\n2024-01-01 00:00:00,2024-01-01 00:00:05,2024-01-01 00:01:00,2,ann\n"
    )
    (folder / "nodes.txt").write_text("NodeName=n1 CPUTot=8 RealMemory=4096 Partitions=a State=IDLE\n")
    (folder / "sacct.txt").write_text(sacct_output())
    for log in Path(os.environ.get("QUEUEWISE_TRACES") or REPOSITORY.parent / "shared" / "traces").rglob("*.csv.gz"):
        (folder / log.name).symlink_to(log)
    with contextlib.chdir(folder):  # the policy that the next commands of the page use
        exec(next(blocks("docs/tutorials/researcher.md", "python")), {})
    return folder


def sacct_output() -> str:
    rng = np.random.default_rng(1)
    rows = [SACCT.replace(",", "|")]
    for number, (hour, minute, gpus) in enumerate(zip(*rng.integers(0, [[24], [59], [4]], (3, 300)), strict=True)):
        day = f"2024-01-{1 + number % 28:02}T{hour:02}:{minute:02}"
        times = f"{day}:00|{day}:00|{day}:01|{day}:{2 + number % 57:02}|01:00:00"
        rows.append(f"{number}|u{number % 5}|a|main|COMPLETED|{times}|1|cpu=4,gres/gpu={1 + gpus}|n{number % 8}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def reader(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the folder of the files, beside a Slurm that runs and waits."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("QUEUEWISE_LIVE_HOME", str(files / "live"))
    slurm = FakeSlurm(rows=[row(3), row(4)])
    monkeypatch.setattr(SlurmCommands, "run", lambda self, *command, stdin=None: slurm.run(*command, stdin=stdin))
    return files


def prepare(arguments: list[str]) -> list[str]:
    """What another command would have made before; the digest of a model is that of the file here."""
    words = " ".join(arguments)
    if "runs/b" in words and not Path("runs/b").exists():  # a second run, to compare with
        kind = TRAINED if arguments[0] == "plot" else EVALUATED
        assert main([*kind, "--out", "runs/b"]) == 0
    if "--resume" in arguments:  # a run that was killed before it ended
        Path("runs/a", LAST_FILE).unlink()
    if "model:runs/a" in words or arguments[0] in ("export", "diagnose"):
        if not Path("runs/a").exists():
            assert main([*TRAINED, "--out", "runs/a"]) == 0
        model = next(Path("runs/a").rglob("best.safetensors"))
        arguments = [DIGEST.sub(hashlib.sha256(model.read_bytes()).hexdigest(), word) for word in arguments]
    return arguments


EVALUATED = ["evaluate", "--workload", "log.swf", "--cluster", "flat:256", "--policy", "ljf"]
TRAINED = shortened(["train", "--workload", "log.swf", "--score", "bsld"])


def printing() -> list[Any]:
    return [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in PAGES if printed(page)]


@pytest.mark.parametrize("page", printing())
def test_printed_commands_work(page: str, reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("runs", ignore_errors=True)  # of the page before
    for arguments in printed(page):
        published = [word for word in arguments if word.endswith(".csv.gz")]
        if not all(Path(name).exists() for name in published):  # without the published logs, the options are all that can be tried
            assert cli._parse(arguments[0], arguments[1:]) is not None
            continue
        arguments = shortened(prepare(arguments))
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        assert (code, "error:" in err) == (0, False), f"queuewise {shlex.join(arguments)}: {err}"
        assert out or err


def test_the_pages_print_commands() -> None:
    """Else the test above would test nothing; and no program is named that nobody looks at."""
    assert sum(len(printed(page)) for page in PAGES) >= 55
    for page in PAGES:
        for words in lines(page):
            known = words[0] in OTHER_PROGRAMS | {"queuewise", "python"} or words[0].startswith(("scripts/", ".venv"))
            assert known, f"{page}: {shlex.join(words)}"


def test_every_printed_command_is_accepted_to_its_end(reader: Path) -> None:
    """Also those of pages whose commands take long, as they are printed. A run that is resumed would have to be there."""
    for page in PAGES:
        for name, *rest in printed(page):
            if not {"--resume", "--config"} & set(rest):
                assert cli._parse(name, rest) is not None, page


def test_the_tutorial_asks_sacct_for_what_is_read_here() -> None:
    (words,) = (words for words in lines("docs/tutorials/operator.md") if words[0] == "sacct")
    assert words[words.index("--format") + 1] == SACCT


class Parsed(Exception):
    """The arguments of a script were accepted."""


def scripts() -> list[tuple[str, ...]]:
    found = {tuple(words[1:]) for page in PAGES for words in lines(page) if words[0].endswith("python") and words[1] != "-m"}
    inline = {tuple(words[1:]) for page in PAGES for words in sentences(page) if words[0] == "python" and words[1].endswith(".py")}
    return sorted(found | inline)


def sentences(page: str) -> Iterator[list[str]]:
    """The words of each command within a sentence."""
    text = re.sub(r"```.*?```", "", (REPOSITORY / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for code in re.findall(r"`((?:queuewise|python|scripts/)[^`]*)`", text):
        with contextlib.suppress(ValueError):  # an odd quotation mark
            yield shlex.split(code)


@pytest.mark.parametrize("words", scripts(), ids=" ".join)
def test_scripts_accept_the_printed_arguments(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    script = REPOSITORY / words[0]
    assert script.is_file()
    if "argparse" not in script.read_text(encoding="utf-8"):
        assert "sys.argv" in script.read_text(encoding="utf-8") or len(words) == 1
        return
    if words[0] in NEEDS_OTHERS:  # it cannot be imported here
        assert all(f'"{word}"' in script.read_text(encoding="utf-8") for word in words if word.startswith("--"))
        return

    def parse(parser: argparse.ArgumentParser, *args: object) -> None:
        real(parser)
        raise Parsed

    real = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [str(script), *words[1:]])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(Parsed):
        runpy.run_path(str(script), run_name="__main__")


NEEDS_OTHERS = {"examples/rllib_ppo.py"}  # Ray is in an environment of its own


def test_printed_scripts_and_tests_exist() -> None:
    for page in PAGES:
        for words in [*lines(page), *sentences(page)]:
            if words[0].startswith("scripts/") and page != "docs/coming-from.md":  # that page names scripts of others
                assert (REPOSITORY / words[0]).is_file(), f"{page}: {words[0]}"
            for word in words[1:]:
                path, _, function = word.partition("::")
                if path.startswith("tests/"):
                    assert (REPOSITORY / path).exists(), f"{page}: {word}"
                    assert not function or f"def {function}(" in (REPOSITORY / path).read_text(encoding="utf-8"), f"{page}: {word}"


def test_commands_within_sentences_have_the_options_that_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[tuple[str, ...], str] = {}
    looked_up = 0
    for page in PAGES:
        for words in sentences(page):
            if words[0] != "queuewise" or len(words) == 1 or not re.fullmatch("[a-z][a-z-]*", words[1]):
                continue
            if words[1] in MARKS:
                continue
            assert words[1] in cli.COMMANDS, f"{page}: {words}"
            command = (words[1], *(word for word in words[2:3] if re.fullmatch("[a-z][a-z-]*", word)))
            if len(command) == 1 and cli.COMMANDS[words[1]].default:
                command = (words[1], cli.COMMANDS[words[1]].default)
            if command not in helps:
                with contextlib.suppress(SystemExit):
                    main([*command, "--help"])
                helps[command] = capsys.readouterr().out
            for option in (word.partition("=")[0] for word in words[2:] if word.startswith("--")):
                looked_up += 1
                assert re.search(rf"{option}\b", helps[command]), f"{page}: {shlex.join(words)}: {option}"
    assert looked_up >= 10


@pytest.mark.slow
def test_the_tutorial_on_training_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in printed("docs/tutorials/rl.md"):
        assert main(arguments) == 0, shlex.join(arguments)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in PARTS_OF_MODULES and any(blocks(page, "python"))])
def test_printed_python_works(page: str, reader: Path) -> None:
    workload, cluster = generate("lublin", 300, seed=1), load_cluster("flat:256")
    simulation = Simulation(workload, cluster, "fcfs+easy")
    simulation.run(until=20_000.0)
    simulation.snapshot().save(Path("snapshot.json"))
    names: dict[str, object] = {"workload": workload, "cluster": cluster, "path": Path("snapshot.json"), "first": 100, "number": 50}
    names["snapshot"] = simulation.snapshot()
    for number, code in enumerate(blocks(page, "python")):
        source = f"<block {number} of {page}>"
        linecache.cache[source] = (len(code), None, code.splitlines(keepends=True), source)  # where functions find their source
        exec(compile(code, source, "exec"), names)


def test_the_readme_is_short(repository: Path) -> None:
    assert len((repository / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
