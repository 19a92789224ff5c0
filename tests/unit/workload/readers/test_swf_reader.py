"""SWF by hand: which field becomes what, what is skipped and under which name."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.workload import ReadOptions
from queuewise.workload.jobs import ANY_PARTITION
from reader_examples import ReadText


def job(**fields: object) -> str:
    """A line of 18 fields, all missing but those given by number: job(f1=7, f5=4)."""
    return " ".join(str(fields.get(f"f{index}", -1)) for index in range(1, 19))


GOOD = {"f1": 1, "f2": 100, "f4": 60, "f5": 4}


def test_every_field_lands_in_its_column(read: ReadText) -> None:
    line = job(f1=7, f2=100.5, f3=20, f4=60, f5=4, f8=8, f9=3600, f10=2048, f12=11, f13=22, f14=33, f15=2)
    workload = read(f"; UnixStartTime: 5000\n{line}\n").workload
    assert (workload.submit[0], workload.recorded_wait[0], workload.runtime[0], workload.requested[0]) == (100.5, 20, 60, 3600)
    assert (workload.num_tasks[0], workload.cpu_milli[0], workload.gpu_milli[0], workload.mem_mib[0]) == (4, 1000, 0, 0)
    assert (workload.users, workload.groups, workload.job_name[0], workload.job_id[0]) == (("11",), ("22",), 0, 7)
    assert (workload.partition[0], workload.epoch) == (ANY_PARTITION, 5000)


def test_memory_and_queues_only_when_asked(read: ReadText) -> None:
    text = job(**GOOD, f10=2500, f15=3) + "\n" + job(**(GOOD | {"f2": 200}), f7=1024) + "\n"
    loaded = read(text, options=ReadOptions(memory=True, partitions=True))
    assert loaded.workload.mem_mib.tolist() == [3, 1]  # requested KB rounded up to MiB; used memory where none was requested
    assert loaded.workload.partitions == ("3",)
    assert loaded.workload.partition.tolist() == [0, ANY_PARTITION]
    unasked = read(text)
    assert unasked.workload.mem_mib.tolist() == [0, 0]
    assert any("--partitions" in note for note in unasked.tally.notes)


def test_requested_processors_stand_in_and_are_counted(read: ReadText) -> None:
    loaded = read(job(f1=1, f2=0, f4=5, f8=16) + "\n")
    assert loaded.workload.num_tasks.tolist() == [16]
    assert loaded.tally.filled == {"num_tasks": 1}


def test_unusable_rows_are_counted_by_reason_with_their_first_line(read: ReadText) -> None:
    lines = [
        "; MaxProcs: 8",
        job(**GOOD),
        job(**(GOOD | {"f4": -1})),
        job(f1=3, f2=0, f4=9),
        job(**(GOOD | {"f2": -50})),
        job(**(GOOD | {"f4": -7})),
        job(**(GOOD | {"f2": "nan"})),
        job(**(GOOD | {"f5": 99999999999})),
        "1 2 3",
        job(**GOOD) + " 99",
        "",
        job(**GOOD),
    ]
    tally = read("\n".join(lines) + "\n").tally
    assert (tally.rows_read, tally.kept) == (10, 2)
    assert tally.skipped == {
        "no runtime": 1, "no processors": 1, "negative submission time": 1, "negative runtime": 1, "no submission time": 1,
        "oversized demand": 1, "too few fields": 1, "too many fields": 1,
    }  # fmt: skip
    assert tally.first_line["no runtime"] == 3
    assert tally.first_line["too many fields"] == 10


def test_blanks_tabs_and_line_ends_do_not_matter(read: ReadText) -> None:
    plain = read(job(**GOOD, f9=10) + "\n" + job(**GOOD, f9=20)).workload
    odd = read("  " + job(**GOOD, f9=10).replace(" ", "   \t ") + "  \r\n" + job(**GOOD, f9=20) + "\r\n").workload
    assert odd.requested.tolist() == plain.requested.tolist() == [10, 20]


def test_unsorted_rows_are_sorted_and_ties_keep_their_order(read: ReadText) -> None:
    loaded = read("\n".join(job(**(GOOD | {"f1": number, "f2": submit})) for number, submit in [(1, 50), (2, 10), (3, 50), (4, 10)]))
    assert loaded.workload.job_id.tolist() == [2, 4, 1, 3]
    assert "rows were not sorted by submission time and have been sorted" in loaded.tally.notes


def test_repeated_ids_are_kept_and_noted(read: ReadText) -> None:
    loaded = read(job(**GOOD) + "\n" + job(**GOOD) + "\n")
    assert len(loaded.workload) == 2
    assert any(note.startswith("1 rows repeat the id") for note in loaded.tally.notes)


def test_comments_may_stand_anywhere(read: ReadText) -> None:
    assert len(read(job(**GOOD) + "\n; a remark\n;another\n" + job(**GOOD)).workload) == 2


@pytest.mark.parametrize("value", ["many", "99999999999999999999", "9" * 400])
def test_header_values_of_no_use_are_noted(read: ReadText, value: str) -> None:
    loaded = read(f"; UnixStartTime: {value}\n; MaxProcs: {value}\n" + job(**GOOD))
    assert (loaded.workload.epoch, loaded.cluster) == (0.0, None)
    assert loaded.tally.notes[:2] == [
        f"{name} in the header is not a valid number: {value[:40]!r}" for name in ("UnixStartTime", "MaxProcs")
    ]


def test_jobs_limit_takes_the_earliest(read: ReadText) -> None:
    text = "\n".join(job(**(GOOD | {"f1": number, "f2": 100 - number})) for number in range(1, 6))
    assert read(text, jobs=2).workload.job_id.tolist() == [5, 4]


def test_blocks_of_lines_join_seamlessly(read: ReadText, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the file is cut into blocks, the table is the same."""
    text = "; MaxProcs: 9\n" + "\n".join(
        job(f1=number, f2=number * 3, f4=number % 7, f5=1 + number % 5, f12=number % 3) for number in range(1, 400)
    )
    whole = read(text).workload
    monkeypatch.setattr("queuewise.workload.readers.source.BLOCK_BYTES", 97)
    pieces = read(text).workload
    for column in ("submit", "runtime", "num_tasks", "user", "job_id"):
        np.testing.assert_array_equal(getattr(whole, column), getattr(pieces, column))
    assert whole.users == pieces.users
