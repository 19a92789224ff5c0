"""Files of a run folder appear whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuewise.errors import InputError
from queuewise.runs import LAST_FILE, file_name, locked, replacing, start_run, write_text


def test_a_file_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with replacing(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_text() == "new"


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def fail_halfway() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_halfway()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_text() == "old"


def test_an_unfinished_folder_is_taken_up_and_a_finished_one_refused(tmp_path: Path) -> None:
    folder = start_run(tmp_path / "deep" / "run")
    assert folder.is_dir()
    assert start_run(folder) == folder
    write_text(folder / LAST_FILE, "[]")
    with pytest.raises(InputError, match="already contains a finished run"):
        start_run(folder)


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        start_run(tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("sjf+easy@pack", "sjf+easy@pack"),
        ("priority-preempt", "priority-preempt"),
        ("fcfs+easy/32", "fcfs+easy_32-"),
        ("fcfs@tier:balance", "fcfs@tier_balance-"),
        ("../x", "_x-"),
        ("", "-"),
    ],
)
def test_policy_names_become_safe_folder_names(policy: str, name: str) -> None:
    """A name that was changed ends with a hash."""
    assert re.fullmatch(re.escape(name) + ("[0-9a-f]{12}" if name.endswith("-") else ""), file_name(policy))


def test_different_names_have_different_folders() -> None:
    names = ["a/b.py:f", "a_b.py:f", "a:b.py:f", "a_b.py_f", "..a", "a", ".a", "x" * 300, "x" * 301, "é" * 150, "é" * 151, "\udcff.py:f"]
    folders = [file_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(0 < len(folder.encode()) <= 200 for folder in folders)


def test_any_name_that_the_file_system_takes_can_be_written(tmp_path: Path) -> None:
    for name in ("ä" * 125, "値" * 83, "x" * 250, "\udcff" * 250):
        write_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
    assert len(list(tmp_path.iterdir())) == 4


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    others = [tmp_path / ".film.part", tmp_path / "a.1.part", tmp_path / "b" / ".x.1.part.gz"]
    mine = [tmp_path / ".a.json.1.part", tmp_path / "b" / ".c.csv.99.part"]
    (tmp_path / "b").mkdir()
    for path in (*others, *mine):
        path.write_text("half")
    with locked(tmp_path):
        assert [path.exists() for path in (*others, *mine)] == [True, True, True, False, False]
