"""The folder of caches: nobody else can write to it, and what is there can be used when nothing can be written."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuewise.cache_folder import UntrustedFileError, cache_folder, cache_home, read_sealed, say_once, write_own, write_sealed


@pytest.fixture(autouse=True)
def forget_what_was_said() -> Iterator[None]:
    for function in (say_once, cache_home):
        function.cache_clear()
    yield
    for function in (say_once, cache_home):
        function.cache_clear()


def home_from(folder: Path | str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QUEUEWISE_CACHE_DIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return cache_home()


def test_a_folder_of_ones_own_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home = home_from(tmp_path / "new" / "cache", monkeypatch, tmp_path)
    assert home == tmp_path / "new" / "cache"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert capsys.readouterr().err == ""


def test_a_folder_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    home = home_from(shared, monkeypatch, tmp_path)
    assert home == tmp_path / f"queuewise-{os.getuid()}"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    said = capsys.readouterr().err
    assert said == f"note: compiled code and predictions are kept in {home}, because {shared} can be written by other users\n"


def test_a_private_folder_that_somebody_else_has_made_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"queuewise-{os.getuid()}").mkdir()
    (tmp_path / f"queuewise-{os.getuid()}").chmod(0o777)
    home = home_from("/proc/nowhere", monkeypatch, tmp_path)
    assert home.parent == tmp_path
    assert home.name.startswith("queuewise-")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(tmp_path / "theirs", 12345, 12345)
    assert home_from(tmp_path / "theirs", monkeypatch, tmp_path) != tmp_path / "theirs"


def test_a_home_that_cannot_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home_from("/proc/nowhere", monkeypatch, tmp_path) == tmp_path / f"queuewise-{os.getuid()}"
    assert "because /proc/nowhere cannot be written" in capsys.readouterr().err


def test_a_user_without_a_home_has_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert home_from("", monkeypatch, tmp_path) == tmp_path / f"queuewise-{os.getuid()}"
    assert "because ~ is not known" in capsys.readouterr().err


def test_with_a_full_disk_what_is_there_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        home = home_from(tmp_path / "cache", monkeypatch, tmp_path)
        with pytest.raises(OSError, match="File too large"):
            write_own(home / "file", b"content")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert home == tmp_path / "cache"
    assert list(home.iterdir()) == []
    assert capsys.readouterr().err == ""


def test_folders_inside_that_others_can_write_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache" / "sim-1" / "core").mkdir(parents=True)
    (tmp_path / "cache" / "sim-1" / "core").chmod(0o777)
    (tmp_path / "cache").chmod(0o700)
    home_from(tmp_path / "cache", monkeypatch, tmp_path)
    assert not cache_folder("sim-1").exists()
    assert "could be written by other users" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [b"", b"content", b"x" * 100])
def test_a_file_is_what_was_written_or_refused(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_sealed(path, b"content")
    assert read_sealed(path) == b"content"
    path.write_bytes(damage)
    with pytest.raises(UntrustedFileError, match="is damaged"):
        read_sealed(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_sealed(path, b"content")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UntrustedFileError):
            read_sealed(path)
