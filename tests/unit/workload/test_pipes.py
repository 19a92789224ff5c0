"""Logs from pipes: read whole, or refused in one line; never waited for without end."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from queuewise.errors import InputError
from queuewise.workload import load_workload, pipes
from queuewise.workload.writers import write_workload

LOG = "; MaxProcs: 8\n" + "".join(f"{j} {60 * j} 5 300 1 -1 -1 1 400 -1 1 1 1 -1 1 -1 -1 -1\n" for j in range(1, 5000))


@pytest.fixture
def piped() -> Iterator[dict[str, str]]:
    """A pipe as `<(…)` gives it, with a thread that writes more than the pipe holds."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as stream:
            stream.write(LOG.encode())

    thread = Thread(target=write)
    thread.start()
    yield {"path": f"/dev/fd/{reader}"}
    thread.join()
    os.close(reader)


def test_a_pipe_is_read_whole(piped: dict[str, str]) -> None:
    loaded = load_workload(piped["path"])
    assert (loaded.format, len(loaded.workload)) == ("swf", 4999)
    assert len(load_workload(piped["path"]).workload) == 4999  # and may be read again


@pytest.mark.parametrize("suffix", ["swf.gz", "parquet"])
def test_compressed_and_binary_logs_come_through_named_pipes(suffix: str, tmp_path: Path) -> None:
    source = tmp_path / "log.swf"
    source.write_text(LOG, encoding="utf-8")
    if suffix == "parquet":
        write_workload(load_workload(source).workload, tmp_path / "log.parquet")
        content = (tmp_path / "log.parquet").read_bytes()
    else:
        content = gzip.compress(LOG.encode())
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    thread = Thread(target=lambda: fifo.write_bytes(content))
    thread.start()
    assert len(load_workload(fifo).workload) == 4999
    thread.join()


def test_a_named_pipe_without_a_writer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(pipes, "WRITER_WAIT_S", 0.2)
    with pytest.raises(InputError, match=r"fifo: nothing was written to this pipe within 0.2 s") as refused:
        load_workload(tmp_path / "fifo")
    assert refused.value.hint == "start the program that writes to it, or use a file"


def test_an_empty_pipe_is_an_empty_file() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(InputError, match=r"empty|unknown format"):
        load_workload(f"/dev/fd/{reader}")
    os.close(reader)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_devices_are_refused(device: str) -> None:
    with pytest.raises(InputError, match="is a terminal or another device"):
        load_workload(device)


def test_copies_are_removed_when_the_process_ends(piped: dict[str, str]) -> None:
    copy = pipes.as_file(Path(piped["path"]))
    assert copy.parent == Path(tempfile.gettempdir())
    pipes._remove(str(copy))
    assert not copy.exists()
    pipes._copy.cache_clear()
