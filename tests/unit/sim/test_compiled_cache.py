"""The cache of compiled code: no edit meets a stale binary, no damage or stranger's file is loaded, and no failure to write stops a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest

import queuewise
from queuewise import cache_folder
from queuewise.sim.core import compilation, compiled_cache

PACKAGES = compilation._CONTENTS


@pytest.mark.parametrize("package", PACKAGES)
def test_the_hash_covers_every_package_that_can_be_in_a_binary(package: str) -> None:
    home = Path(queuewise.__file__).parent
    assert home == compilation._PACKAGE
    for content in PACKAGES[package]:
        assert list((home / content).glob("**/*.py")), content


def test_an_edited_source_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sim" / "core").mkdir(parents=True)
    source = tmp_path / "sim" / "core" / "loop.py"
    source.write_text("one", encoding="utf-8")
    monkeypatch.setattr(compilation, "_PACKAGE", tmp_path)
    before = compilation._source_hash("sim")
    source.write_text("two", encoding="utf-8")
    assert compilation._source_hash("sim") != before


# --- files on disk


def double(x: float) -> float:
    return 2 * x


def make_double(folder: Path) -> Any:
    """A compiled function whose binaries are in `folder`, as in a new process."""
    compiled = numba.njit(double)
    compiled_cache.use_cache(compiled, folder)
    return compiled


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


@pytest.fixture(autouse=True)
def forget_what_was_said() -> Iterator[None]:
    cache_folder.say_once.cache_clear()
    yield
    cache_folder.say_once.cache_clear()


def test_a_binary_is_loaded_by_the_next_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = make_double(tmp_path / "cache"), make_double(tmp_path / "cache")
    assert (first(2.0), hits(first)) == (4.0, 0)
    assert (second(2.0), hits(second)) == (4.0, 1)
    assert capsys.readouterr().err == ""


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "changed": lambda content: content[:-40] + bytes([content[-40] ^ 1]) + content[-39:],
    "replaced": lambda content: b"cos\nsystem\n(S'exit 1'\ntR.",
}


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_removed_and_compiled_again(suffix: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_double(tmp_path)(2.0)
    (path,) = tmp_path.glob(f"*/*.{suffix}")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = make_double(tmp_path)
    assert (again(2.0), hits(again)) == (4.0, 0)
    assert capsys.readouterr().err.count("the cache of compiled code was damaged and is compiled again") == 1
    third = make_double(tmp_path)
    assert (third(2.0), hits(third)) == (4.0, 1)


def test_two_processes_that_write_at_once_never_load_the_binary_of_another_type(tmp_path: Path) -> None:
    """Both have read the same index before either writes: one entry may be lost, none is mixed up."""
    one, two = make_double(tmp_path), make_double(tmp_path)
    one._cache._cache_file._load_index = two._cache._cache_file._load_index = dict
    assert (one(2), two(2.5)) == (4, 5.0)
    again = make_double(tmp_path)
    assert (again(3), again(3.5)) == (6, 7.0)
    assert hits(again) == 1


def test_processes_that_start_with_an_empty_cache_all_work(tmp_path: Path) -> None:
    code = (
        "import numba; from pathlib import Path; from queuewise.sim.core import compiled_cache\n"
        "from colorsys import rgb_to_yiq\n"
        "f = numba.njit(rgb_to_yiq); compiled_cache.use_cache(f, Path('cache')); print(f(0.0, 0.0, 0.0))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate() for process in running] == [("(0.0, 0.0, 0.0)\n", "")] * 2


def full_disk(path: Path, content: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_keeps_nothing_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compiled_cache, "write_own", full_disk)
    function = make_double(tmp_path)
    assert (function(2.0), function(2)) == (4.0, 4)
    assert capsys.readouterr().err.count("compiled code is not kept") == 1


def test_files_that_others_can_write_are_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_double(tmp_path)(2.0)
    (index,) = tmp_path.glob("*/*.nbi")
    index.chmod(0o666)
    again = make_double(tmp_path)
    assert (again(2.0), hits(again)) == (4.0, 0)
    assert "is compiled again" in capsys.readouterr().err


def test_whatever_the_umask_is_others_cannot_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_double(tmp_path / "cache")(2.0)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o022 for path in (tmp_path / "cache").rglob("*")} == {0}
