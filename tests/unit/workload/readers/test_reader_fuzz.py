"""Any bytes thrown at any reader give a clean error or a table that keeps its invariants and its tally."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuewise.errors import InputError
from queuewise.workload import load_workload
from queuewise.workload.readers import READERS
from reader_examples import EXAMPLES

NASTY = [
    b"", b"-1", b"nan", b"inf", b"1e400", b"9" * 25, b"2147483647", b"0", b"-0", b"0.5", b",", b"|", b";", b"\n", b"\r\n", b"\r", b'"',
    b'""',
    b"\0", b"\xff", b"\xe2\x80\xa8", b" ", b"\t", b"{", b"}", b"[", b"]", b":", b"null", b"true", b"=", b"UNLIMITED", b"Unknown",
    b"gres/gpu=99999999", b"2020-99-99T00:00:00", b"9999999-00:00:00", b"1e-320", b"#", b"\x1f\x8b", b"\xef\xbb\xbf",
]  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn, format: str) -> bytes:
    """An example of the format with pieces cut out and nasty ones put in, or plain noise."""
    content = bytearray(draw(st.sampled_from(EXAMPLES[format])) if draw(st.integers(0, 9)) else draw(st.binary(max_size=200)))
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 0, 1, 3, 20]))
        content[start : start + length] = draw(st.one_of(st.sampled_from(NASTY), st.binary(max_size=3)))
    return bytes(content)


def check(path: Path, format: str | None) -> None:
    message = ""
    try:
        loaded = load_workload(path, format=format)
    except InputError as error:
        message = str(error)
    if message:
        assert message.isprintable()
        return
    workload, tally = loaded.workload, loaded.tally
    assert len(workload) == tally.kept >= 1
    assert tally.rows_read == tally.kept + sum(tally.skipped.values())
    assert (np.diff(workload.submit) >= 0).all()
    assert (workload.submit >= 0).all()
    assert (workload.runtime >= 0).all()
    assert (workload.num_tasks >= 1).all()
    assert not (workload.recorded_wait < 0).any()
    assert len(workload.job_id) == len(workload)
    assert workload.user.max() < max(len(workload.users), 1)
    assert workload.group.max() < max(len(workload.groups), 1)


def fuzz(format: str, examples: int, path: Path) -> None:
    @settings(max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(mutations(format))
    def throw(content: bytes) -> None:
        path.write_bytes(content)
        check(path, format)
        check(path, None)

    throw()


@pytest.mark.parametrize("format", READERS)
def test_any_bytes_give_a_clean_error_or_a_sound_table(format: str, tmp_path: Path) -> None:
    fuzz(format, 40, tmp_path / "log")


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("format", READERS)
def test_ten_thousand_times(format: str, tmp_path: Path) -> None:
    fuzz(format, 10_000, tmp_path / "log")
