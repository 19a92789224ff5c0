"""Files of a run folder appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuewise.errors import InputError
from queuewise.runs import LAST_FILE, file_name, replacing, start_run, write_text


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
    [("sjf+easy@pack", "sjf+easy@pack"), ("fcfs+easy/32", "fcfs+easy_32"), ("tier:balance", "tier_balance"), ("../x", "_x"), ("", "_")],
)
def test_policy_names_become_safe_folder_names(policy: str, name: str) -> None:
    assert file_name(policy) == name
