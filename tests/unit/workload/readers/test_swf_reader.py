"""SWF by hand: which field becomes what, what is skipped and under which name."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import ReadOptions, load_workload
from queuewise.workload.jobs import ANY_PARTITION
from queuewise.workload.loaded import Processors
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


@pytest.mark.parametrize(("processors", "sizes"), [(None, [4, 16, 2]), ("allocated", [4, 16, 2]), ("requested", [8, 16, 2])])
def test_the_size_is_what_was_requested_or_allocated(read: ReadText, processors: Processors | None, sizes: list[int]) -> None:
    rows = [job(**GOOD, f8=8), job(f1=2, f2=200, f4=5, f8=16), job(f1=3, f2=300, f4=5, f5=2)]
    loaded = read("\n".join(rows), options=ReadOptions(processors=processors))
    assert loaded.workload.num_tasks.tolist() == sizes
    assert loaded.tally.filled == {"num_tasks": 1}
    field, other = (8, "allocated processors (field 5)") if processors == "requested" else (5, "requested processors (field 8)")
    assert f"num_tasks: {other} if field {field} has none" in loaded.tally.notes


CLEANABLE = "; MaxProcs: 8\n" + "\n".join(
    job(**(GOOD | {"f1": number} | fields))
    for number, fields in enumerate([
        {"f9": 100}, {"f9": 50}, {"f4": 0, "f9": 100}, {"f9": 0}, {"f9": -1}, {"f5": 9, "f9": 100}, {"f5": 8, "f8": 9, "f9": 100},
    ])
)  # fmt: skip


def test_clean_drops_what_cannot_have_run_and_cuts_runtimes(read: ReadText) -> None:
    loaded = read(CLEANABLE, options=ReadOptions(clean=True))
    assert loaded.workload.job_id.tolist() == [0, 1, 6]
    assert loaded.workload.runtime.tolist() == [60, 50, 60]
    assert loaded.tally.skipped == {
        "runtime of 0 s (--clean)": 1, "no requested time (--clean)": 2, "more processors than the machine (--clean)": 1,
    }  # fmt: skip
    assert loaded.tally.filled == {"runtime": 1}
    requested = read(CLEANABLE, options=ReadOptions(clean=True, processors="requested"))
    assert requested.workload.job_id.tolist() == [0, 1]
    unclean = read(CLEANABLE)
    assert (len(unclean.workload), unclean.workload.runtime[1], unclean.tally.filled) == (7, 60, {})


def test_the_machine_of_clean_is_the_given_one_before_that_of_the_header(read: ReadText) -> None:
    assert read(CLEANABLE, options=ReadOptions(clean=True, machine_procs=9)).workload.job_id.tolist() == [0, 1, 5, 6]
    loaded = read(CLEANABLE.partition("\n")[2], options=ReadOptions(clean=True))
    assert loaded.workload.job_id.tolist() == [0, 1, 5, 6]
    assert "the header has no MaxProcs, so --clean drops no job for its size" in loaded.tally.notes


def test_files_of_21_fields_are_read(read: ReadText) -> None:
    loaded = read(f"{job(**GOOD)} 1 2 3\n{job(**GOOD)}\n{job(**GOOD)} 1 2 3 4\n")
    assert (loaded.format, loaded.workload.num_tasks.tolist(), loaded.tally.skipped) == ("swf", [4, 4], {"too many fields": 1})
    assert "fields 19 to 21 are not part of SWF 2.2 and are not used" in loaded.tally.notes


@pytest.mark.parametrize("options", [ReadOptions(processors="requested"), ReadOptions(clean=True), ReadOptions(memory=True)])
def test_options_of_swf_are_refused_for_other_logs(read: ReadText, options: ReadOptions) -> None:
    with pytest.raises(InputError, match=r"--\w+ cannot be used with drl") as refused:
        read("arrival_time,runtime,gpus,priority\n0,60,1,0\n", options=options)
    assert refused.value.hint == "use it with swf"
    with pytest.raises(InputError, match=r"bursty is a model, not a log; --\w+ cannot be used"):
        load_workload("bursty", options=options)


def test_unknown_kinds_of_processors_are_refused() -> None:
    with pytest.raises(InputError, match="unknown kind of processors 'request'") as refused:
        ReadOptions(processors="request")  # type: ignore[arg-type]
    assert "did you mean 'requested'" in str(refused.value.hint)


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
