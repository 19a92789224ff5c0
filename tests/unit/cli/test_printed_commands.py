"""Every command and every piece of Python that the README and the pages print works as printed, in a folder with the files they name."""

from __future__ import annotations

import contextlib
import linecache
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from queuewise import cli
from queuewise.cli import main
from queuewise.workload.models import generate
from queuewise.workload.writers import write_workload

PAGES = (
    "README.md",
    "docs/clusters.md",
    "docs/conditions.md",
    "docs/evaluation.md",
    "docs/formats.md",
    "docs/policies.md",
    "docs/workloads.md",
    "docs/metrics.md",
    "docs/mdp.md",
    "docs/validation.md",
    "docs/tutorials/operator.md",
    "docs/tutorials/researcher.md",
    "docs/tutorials/rl.md",
    "docs/rl-libraries.md",
)
TRIED = ("simulate", "size", "validate", "evaluate", "compare", "report", "workload", "policies", "clusters", "new-policy", "doctor")
REPOSITORY = Path(__file__).resolve().parents[3]


def blocks(page: str, language: str) -> Iterator[str]:
    pieces = (REPOSITORY / page).read_text(encoding="utf-8").split("```")[1::2]
    return (piece.removeprefix(language) for piece in pieces if piece.partition("\n")[0] == language)


def printed(page: str) -> list[list[str]]:
    """The arguments of each `queuewise` line; what is behind # is a comment."""
    lines = (line for block in blocks(page, "") for line in block.splitlines() if line.startswith("queuewise "))
    return [shlex.split(line, comments=True)[1:] for line in lines]


def commands(page: str) -> list[list[str]]:
    """Those that take seconds: they neither train nor play what was trained."""
    return [arguments for arguments in printed(page) if arguments[0] in TRIED and not any("model:" in word for word in arguments)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs that the pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    jobs = generate("lublin", 12_000, seed=1)
    write_workload(jobs.replace(requested=2 * jobs.runtime), folder / "log.swf")
    write_workload(jobs.take(slice(0, 2_000)), folder / "my_log.swf.gz")
    for name, text in zip(("conditions.toml", "reserved.toml"), blocks("docs/conditions.md", "toml"), strict=True):
        (folder / name).write_text(text)
    (folder / "mine.csv").write_text(
        "queued_at,began,finished,cards,owner\n2024-01-01 00:00:00,2024-01-01 00:00:05,2024-01-01 00:01:00,2,ann\n"
    )
    rng = np.random.default_rng(1)
    rows = ["JobID|User|State|Submit|Start|End|NNodes|AllocTRES"]
    for number, (hour, minute, gpus) in enumerate(zip(*rng.integers(0, [[24], [59], [4]], (3, 300)), strict=True)):
        day = f"2024-01-{1 + number % 28:02}T{hour:02}:{minute:02}"
        rows.append(f"{number}|u{number % 5}|COMPLETED|{day}:00|{day}:01|{day}:{2 + number % 57:02}|1|cpu=4,gres/gpu={1 + gpus}")
    (folder / "nodes.txt").write_text("NodeName=n1 CPUTot=8 RealMemory=4096 Partitions=a State=IDLE\n")
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    with contextlib.chdir(folder):  # the policy that the next commands of the page use
        exec(next(blocks("docs/tutorials/researcher.md", "python")), {})
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_printed_commands_work(page: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(files)
    for arguments in commands(page):
        if "runs/b" in arguments and not Path("runs/b").exists():  # a second run, to compare with
            assert main(["evaluate", "--workload", "log.swf", "--cluster", "flat:256", "--policy", "ljf", "--out", "runs/b"]) == 0
        code = main(arguments)
        out, err = capsys.readouterr()
        assert (code, "error" in err) == (0, False), f"queuewise {shlex.join(arguments)}: {err}"
        assert out or "written to" in err


def test_the_pages_print_commands() -> None:
    """Else the test above would test nothing."""
    assert sum(len(commands(page)) for page in PAGES) >= 25


def test_every_printed_command_has_the_options_that_it_uses() -> None:
    """Also those of pages whose commands take long. A run that is resumed or a file of settings would have to be there; … is left out."""
    pages = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md")]
    found = [(page, arguments) for page in ("README.md", *pages) for arguments in printed(page)]
    assert len(found) > 40
    for page, (name, *rest) in found:
        assert name in cli.COMMANDS, f"{page}: {name}"
        if not {"--resume", "--config", "…"} & set(rest):
            assert cli._parse(name, rest) is not None, page


@pytest.mark.slow
def test_the_tutorial_on_training_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in printed("docs/tutorials/rl.md"):
        assert main(arguments) == 0, shlex.join(arguments)


@pytest.mark.parametrize("page", PAGES)
def test_printed_python_works(page: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page, "python")):
        source = f"<block {number} of {page}>"
        linecache.cache[source] = (len(code), None, code.splitlines(keepends=True), source)  # where functions find their source
        exec(compile(code, source, "exec"), names)
    assert names or not list(blocks(page, "python"))


def test_the_readme_is_short(repository: Path) -> None:
    assert len((repository / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
