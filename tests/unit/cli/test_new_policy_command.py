"""`queuewise new-policy`: what it writes works at once, and it overwrites nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from queuewise.cli import main
from queuewise.policies.starter import make_starter


def test_what_it_writes_passes_its_own_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-policy", "my_idea", "--folder", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    policy, test = tmp_path / "new" / "my_idea.py", tmp_path / "new" / "test_my_idea.py"
    assert out.split() == [str(policy), str(test)]
    assert f"--policy {policy}:my_idea " in err
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_suggested_command_works(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-policy", "mine"]) == 0
    command = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("try it: queuewise "))
    arguments = command.removeprefix("try it: queuewise ").split()
    arguments[arguments.index("--jobs") + 1] = "500"
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "mine.py:mine" in out
    assert "compiled mine.py:mine in " in err


@pytest.mark.parametrize("existing", ["mine.py", "test_mine.py"])
def test_nothing_is_overwritten(tmp_path: Path, existing: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / existing).write_text("precious", encoding="utf-8")
    assert main(["new-policy", "mine", "--folder", str(tmp_path)]) == 2
    assert f"{existing}: already exists" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize("name", ["My-Policy", "9lives", "class", "_hidden", "", "a/b", "random", "queuewise"])
def test_bad_names_are_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-policy", name, "--folder", str(tmp_path)]) == 2
    assert f"error: {name!r} " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["new-policy", "mine", "--folder", str(tmp_path / "file" / "sub")]) == 2
    assert "cannot be created" in capsys.readouterr().err


def test_names_become_classes() -> None:
    assert "\nclass ShortestFirst2:" in make_starter("shortest_first2").policy
