"""Fetching from a local server: whole, resumed, refused, damaged."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request

import pytest

from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.workload import download
from queuewise.workload.catalog import TRACES, PublicTrace, TraceFile, find_trace
from queuewise.workload.download import fetch
from queuewise.workload.readers import READERS

SPOKEN = download.SCHEMES  # tests with a server replace it

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves CONTENT under every path; `ranges` off ignores Range, `breaks_after` closes the connection early."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges = True
        self.breaks_after: int | None = None
        self.redirects_to = ""
        self.asked: list[str | None] = []

    @property
    def file(self) -> TraceFile:
        return TraceFile(f"http://127.0.0.1:{self.server_port}/trace.swf.gz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.redirects_to:
            self.send_response(302)
            self.send_header("Location", self.server.redirects_to)
            self.end_headers()
            return
        if self.path == "/missing":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        end = len(CONTENT) if self.server.breaks_after is None else start + self.server.breaks_after
        self.wfile.write(CONTENT[start:end])

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "SCHEMES", ("http", "https"))  # a server of the test has no certificate
    with Server() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_whole_file_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(server.file, tmp_path / "new" / "folder", lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_file_that_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    fetch(server.file, tmp_path)
    fetch(server.file, tmp_path)
    assert len(server.asked) == 1


def test_broken_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 300_000
    with pytest.raises(InputError, match="300000 bytes were kept; run the command again"):
        fetch(server.file, tmp_path)
    assert not (tmp_path / "trace.swf.gz").exists()
    server.breaks_after = None
    assert fetch(server.file, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-"]


def test_server_without_ranges_starts_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "trace.swf.gz.part").write_bytes(CONTENT[:1000])
    server.ranges = False
    assert fetch(server.file, tmp_path).read_bytes() == CONTENT


def test_complete_part_needs_only_its_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "trace.swf.gz.part").write_bytes(CONTENT)
    assert fetch(server.file, tmp_path).read_bytes() == CONTENT
    assert server.asked == []


def test_part_longer_than_the_file_starts_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "trace.swf.gz.part").write_bytes(CONTENT + b"more")
    assert fetch(server.file, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_wrong_checksum_removes_the_file(server: Server, tmp_path: Path) -> None:
    wrong = TraceFile(server.file.address, "0" * 64, None)
    with pytest.raises(InputError, match=r"checksum is .* expected 000000000000"):
        fetch(wrong, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_never_overwritten_or_removed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "trace.swf.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match="is another file than the published one"):
        fetch(server.file, tmp_path)
    assert (tmp_path / "trace.swf.gz").read_bytes() == b"something else"


def test_a_redirect_to_another_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match=r"redirects to http://example\.org/x, which is not https"):
        download._SafeRedirects().redirect_request(Request("https://example.org"), None, 302, "", {}, "http://example.org/x")


def test_only_https_is_spoken(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.redirects_to = "ftp://example.org/x"
    with pytest.raises(InputError, match=r"redirects to ftp://example\.org/x, which is not https"):
        fetch(server.file, tmp_path)
    monkeypatch.setattr(download, "SCHEMES", SPOKEN)
    for address in (server.file.address, "file:///etc/passwd", "ftp://example.org/x"):
        with pytest.raises(InputError, match="is not an https address"):
            fetch(TraceFile(address, None, None), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_more_is_taken_than_the_catalogue_states(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the server sends more than 1,000 bytes"):
        fetch(TraceFile(server.file.address, None, 1000), tmp_path)
    monkeypatch.setattr(download, "MAX_BYTES", 5000)
    with pytest.raises(InputError, match="the server sends more than 5,000 bytes"):
        fetch(TraceFile(server.file.address, None, None), tmp_path)
    assert not (tmp_path / "trace.swf.gz").exists()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0


def test_two_downloads_of_one_file_do_not_mix(server: Server, tmp_path: Path) -> None:
    with (tmp_path / "trace.swf.gz.part").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="download failed"):
            fetch(server.file, tmp_path)
    assert fetch(server.file, tmp_path).read_bytes() == CONTENT


def test_missing_on_the_server(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing: download failed: HTTP Error 404"):
        fetch(TraceFile(f"http://127.0.0.1:{server.server_port}/missing", None, None), tmp_path)


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="download failed"):
        fetch(TraceFile("https://127.0.0.1:9/nothing", None, None), tmp_path)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_catalogue_entries_are_complete(trace: PublicTrace) -> None:
    assert trace.format in READERS
    assert trace.licence
    assert trace.citation
    assert trace.files
    assert all(file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32 for file in trace.files)
    assert trace.unverified or all(file.sha256 for file in trace.files)
    assert all(file.address.startswith("https://") for file in trace.files)


def test_clusters_of_the_catalogue_have_the_size_of_the_literature() -> None:
    processors = {"hpc2n": 240, "ctc-sp2": 338, "kth-sp2": 100, "sdsc-sp2": 128}
    assert {trace.name: load_cluster(trace.cluster).num_cores for trace in TRACES if trace.format == "swf"} == processors
    gpus = {"philly": 2490, "helios": 1080, "pai": 6742, "openb": 6212}
    others = {trace.name: load_cluster(trace.cluster).num_gpus for trace in TRACES if trace.format != "swf" and trace.cluster}
    assert others == gpus


def test_unknown_trace_suggests_the_nearest() -> None:
    assert len({trace.name for trace in TRACES}) == len(TRACES)
    with pytest.raises(InputError, match="did you mean 'hpc2n'"):
        find_trace("hpcn2")


@pytest.mark.parametrize(("trace", "copy"), [("hpc2n", "swf/HPC2N-2002-2.2-cln.swf.gz"), ("openb", "alibaba/openb_pod_list_default.csv")])
def test_checksums_are_those_of_the_published_files(traces: Path, trace: str, copy: str) -> None:
    file = find_trace(trace).files[0]
    content = (traces / copy).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (file.sha256, file.size_bytes)
