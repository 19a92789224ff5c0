"""Bad files: one line that says where and what to do, or a counted skip; never a traceback, never silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from queuewise.errors import InputError
from queuewise.workload import load_workload
from queuewise.workload.readers import READERS
from reader_examples import EXAMPLES, ReadText

SWF = EXAMPLES["swf"][0]
DRL = "arrival_time,runtime,gpus,priority\n"


def test_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "january.swf").write_bytes(SWF)
    with pytest.raises(InputError, match=r"januray\.swf: no such file \(hint: did you mean 'january\.swf'\?\)"):
        load_workload(tmp_path / "januray.swf")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_workload(tmp_path / "nowhere" / "january.swf")


def test_name_that_is_neither_file_nor_model() -> None:
    with pytest.raises(InputError, match="did you mean 'poisson'"):
        load_workload("poison")


def test_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_workload(tmp_path, format="swf")


@pytest.mark.parametrize("name", READERS)
def test_wrong_format_is_a_clear_error(name: str, tmp_path: Path) -> None:
    """Prose read as any format: an InputError that names the file."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear operator,\n\nplease run my jobs soon, they matter.\n")
    with pytest.raises(InputError, match=r"letter\.txt") as caught:
        load_workload(path, format=name)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [b"", b"\n\n  \n"], ids=["empty", "blank"])
def test_empty_file(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.write_bytes(content)
    for format in (name, None):
        with pytest.raises(InputError, match=r"empty\.log"):
            load_workload(path, format=format)


def test_header_without_rows(read: ReadText) -> None:
    with pytest.raises(InputError, match="the log has no rows"):
        read(DRL)


def test_no_usable_row_lists_the_reasons(read: ReadText) -> None:
    with pytest.raises(
        InputError, match=r"no usable job in 2 rows: 1 x negative runtime \(first at line 3\), 1 x no submission time \(first at line 2\)"
    ):
        read(DRL + "soon,1,1,1\n0,-5,1,1\n")


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf.gz"
    lines = b"".join(b"%d %d -1 10 2 -1 -1 -1 20 -1 1 1 1 -1 1 -1 -1 -1\n" % (number, number * 7919 % 100_003) for number in range(20_000))
    packed = gzip.compress(lines)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match=r"jobs\.swf\.gz:\d+: the file is truncated or damaged"):
        load_workload(path)


def test_gzip_with_damaged_middle(tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf.gz"
    packed = bytearray(gzip.compress(SWF * 5000))
    packed[len(packed) // 2 : len(packed) // 2 + 20] = b"\xff" * 20
    path.write_bytes(bytes(packed))
    with pytest.raises(InputError, match="truncated or damaged"):
        load_workload(path, format="swf")


def test_utf16_says_how_to_convert(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"UTF-16.*iconv"):
        read((DRL + "0,1,1,1\n").encode("utf-16"))


def test_byte_order_mark_is_no_part_of_the_header(read: ReadText) -> None:
    assert len(read(b"\xef\xbb\xbf" + DRL.encode() + b"0,1,1,1\n").workload) == 1


def test_other_encodings_are_replaced_and_noted(read: ReadText) -> None:
    loaded = read(b"submit,runtime,gpus,user\n0,1,1,ann\n0,1,1,J\xf6rg\n")
    assert loaded.workload.users == ("ann", "J�rg")
    assert "not UTF-8 from line 3: invalid characters were replaced" in loaded.tally.notes


def test_binary_is_refused_with_its_line(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"log\.txt:3: binary data"):
        read(DRL.encode() + b"0,1,1,1\n0,\0,1,1\n")


def test_wrong_delimiter_is_named(read: ReadText) -> None:
    with pytest.raises(InputError, match="fields are separated by semicolon, expected comma"):
        read((DRL + "0,1,1,1\n").replace(",", ";"), format="drl")


def test_missing_column_is_named(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"log\.txt:1: missing columns: priority; found: arrival_time, runtime, gpus"):
        read("arrival_time,runtime,gpus\n0,1,1\n", format="drl")


def test_header_in_the_middle(read: ReadText) -> None:
    loaded = read(DRL + "0,1,1,1\n" + DRL + "5,1,1,1\n")
    assert (len(loaded.workload), loaded.tally.skipped, loaded.tally.first_line) == (
        2,
        {"repeated header line": 1},
        {"repeated header line": 3},
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("-5,1,1,1", "negative submission time"),
        ("nan,1,1,1", "no submission time"),
        ("inf,1,1,1", "no submission time"),
        ("0,nan,1,1", "no runtime"),
        ("0,,1,1", "no runtime"),
        ("0,-1,1,1", "negative runtime"),
        ("0,1e300,1,1", "time out of range"),
        ("0,1,,1", "no size"),
        ("0,1,-2,1", "negative demand"),
        ("0,1,2.5,1", "size is not a whole number"),
        ("0,1,99999999999,1", "oversized demand"),
        ("0,1,1,1,extra", "too many fields"),
    ],
)
def test_bad_values_are_counted_by_name(read: ReadText, row: str, reason: str) -> None:
    tally = read(DRL + "0,1,1,1\n" + row + "\n").tally
    assert (tally.kept, tally.skipped, tally.first_line) == (1, {reason: 1}, {reason: 3})


def test_job_that_asks_for_nothing(read: ReadText) -> None:
    assert read("submit,runtime,num_tasks,gpu_milli\n0,1,1,0\n0,1,1,1000\n").tally.skipped == {"asks for nothing": 1}


def test_a_broken_quote_loses_one_row_only(read: ReadText) -> None:
    loaded = read('submit,runtime,gpus,user\n0,1,1,"a, b"\n1,1,1,"broken\n2,1,1,"c ""d"""\n3,1,1,e\n')
    assert loaded.workload.submit.tolist() == [0, 1, 2, 3]
    assert loaded.workload.users == ("a, b", "broken", 'c "d"', "e")


def test_jobs_must_be_positive(read: ReadText) -> None:
    with pytest.raises(InputError, match="jobs must be at least 1"):
        read(SWF, jobs=0)
