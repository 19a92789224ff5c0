"""Broken files and wrong names as a user meets them on the command line: exit code 2, one line that says where and what, and a hint;
or the rows that cannot be used are skipped, counted and told. Never a traceback, never silence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from queuewise.cli import main


def job(number: object, submit: object = 0, run: object = 10, procs: object = 1) -> str:
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs} 20 -1 1 1 1 -1 -1 -1 -1 -1\n"


SWF = "; MaxProcs: 4\n" + "".join(job(number, 10 * number) for number in range(1, 6))
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SACCT = "JobID|User|State|Submit|Start|End|Timelimit|NNodes|NCPUS|ReqMem|AllocTRES\n"


def helios(number: int, state: str = "COMPLETED", start: str = "2020-01-01 00:00:10", end: str = "2020-01-01 00:01:00") -> str:
    return f"{number},u,v,1,4,1,{state},2020-01-01 00:00:00,{start},{end},50,10\n"


def sacct(
    number: object, state: str = "COMPLETED", times: str = "00:00:00|00:01:00|00:02:00", limit: str = "01:00:00", mem: str = "4G"
) -> str:
    return f"{number}|u|{state}|{'|'.join(f'2024-01-01T{time}' for time in times.split('|'))}|{limit}|1|4|{mem}|cpu=4\n"


Answer = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Write the file, run the command in its folder; returns exit code, stdout and stderr."""

    def write_and_run(content: str | bytes | None, *arguments: str, name: str = "log") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        if content is not None:
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        code = main(list(arguments) or ["workload", "info", name])
        return code, *capsys.readouterr()

    return write_and_run


REFUSED: dict[str, tuple[str | bytes, str, str]] = {  # what -> content, error, hint (beginnings)
    "empty": ("", "log: the file is empty", "is this the right file?"),
    "only a header": ("; MaxProcs: 4\n", "log: the log has no rows", "is this the right file?"),
    "binary": (b"\x7fELF\0\0\0" * 99, "log:1: binary data, not text", "is this the right file?"),
    "binary further down": (SWF.encode() + b"\0\0", "log:7: binary data, not text", "is this the right file?"),
    "UTF-16": (SWF.encode("utf-16"), "log:1: this is UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
    "prose": ("Dear operator,\n", "log:1: unknown format; the file starts with 'Dear operator,'", "known: parquet, slurm, "),
    "no usable row": (
        job(1, "soon") + job(2, -1),
        "log: no usable job in 2 rows: 1 x negative submission time (first at line 2), 1 x no submission time (first at line 1)",
        "it was read as swf; is this the right --format?",
    ),
    "truncated gz": (gzip.compress(SWF.encode())[:12], "log:1: the file is truncated or damaged: ", "download or compress it again"),
    "broken JSON": ('{"jobs": [', "log:1: not valid JSON: ", "expected the output of sacct --json"),
    "broken Parquet": (b"PAR1" + b"x" * 99, "log: damaged Parquet: ", "create the file again"),
    "columns missing": (
        HELIOS.replace("gpu_num", "gpu").replace("duration", "took") + helios(1),
        "log:1: this looks like helios, but columns are missing: gpu_num; found: job_id, user, vc, gpu, cpu_num, node_num, ",
        "map the columns: --map ",
    ),
    "sacct fields missing": (
        "JobID|User|Submit|State\n1|u|2024-01-01T00:00:00|COMPLETED\n",
        "log:1: this looks like the output of sacct without Start and End; found: JobID, User, Submit, State",
        "run sacct --allusers --parsable2 --format JobID,User,",
    ),
    "other delimiter": (
        (HELIOS + helios(1)).replace(",", ";"),
        "log:1: this looks like helios with another separator",
        "fields are separated by semicolon; change the separator to that of helios",
    ),
    "unknown columns": (
        "when,how long,n\n0,10,1\n",
        "log:1: unknown format; columns submit, runtime (or end) and num_tasks, gpus or cores are needed; found: when, how long, n",
        "map the columns: --map ",
    ),
    "machines instead of jobs": (
        "sn,cpu_milli,memory_mib,gpu,model\nn1,1000,1024,8,T4\n",
        "log:1: this is a machine list of openb, not a list of jobs",
        "use the log of jobs as the workload, and add this file with --tables",
    ),
    "sacct for people": ("JobID  User\n------ ----\n1      u\n", "log:1: this is the human-readable output of", "run sacct --parsable2"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_cannot_be_used_are_refused(what: str, run: Answer) -> None:
    content, error, hint = REFUSED[what]
    code, out, err = run(content)
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 2), err
    assert lines[0].startswith(f"error: {error}")
    assert lines[1].startswith(f"hint: {hint}")


TOLD: dict[str, tuple[str | bytes, int, str]] = {  # what -> content, jobs kept, what is told
    "negative times": (
        SWF + job(6, -50) + job(7, 60, -3),
        5,
        "2 rows were skipped: 1 x negative runtime (first at line 8), 1 x negative submission time (first at line 7)",
    ),
    "NaN times": (
        SWF + job(6, "nan") + job(7, 60, "NaN"), 5, "1 x no runtime (first at line 8), 1 x no submission time (first at line 7)"
    ),
    "zero demand": (SWF + job(6, 60, 10, 0), 5, "1 rows were skipped: 1 x no processors (first at line 7)"),
    "demand beyond any machine": (SWF + job(6, 60, 10, 99_999_999_999), 5, "1 x oversized demand (first at line 7)"),
    "rows not in order": ("; MaxProcs: 4\n" + job(1, 50) + job(2, 40), 2, "rows were not sorted by submission time and have been sorted"),
    "ids repeated": (SWF + job(3, 60), 6, "1 rows repeat the id of another row; all are kept as separate jobs"),
    "too few fields": (SWF + "6 60 -1\n", 5, "1 x too few fields (first at line 7)"),
    "too many fields": (SWF + job(6).strip() + " 1 2\n", 5, "1 x too many fields (first at line 7)"),
    "not UTF-8": (SWF.encode() + job(6).replace(" 1 1 1 ", " 1 \xe9 1 ").encode("latin-1"), 6, "not UTF-8 from line 7"),
    "mixed encodings": (
        (HELIOS + helios(1).replace("u", "ü")).encode() + helios(2).replace("u", "ü").encode("latin-1"), 2, "not UTF-8 from line 3"
    ),
    "header in the middle": (HELIOS + helios(1) + HELIOS + helios(2), 2, "1 x repeated header line (first at line 3)"),
    "times running backwards": (
        HELIOS + helios(1) + helios(2, end="2019-12-31 00:00:00"), 1, "1 x negative runtime (first at line 3)"
    ),
    "start before submission": (
        HELIOS + helios(1, start="2019-12-31 23:00:00"), 1, "recorded_wait: starts before the submission are treated as unknown waits"
    ),
    "clock set back": (SACCT + sacct(1) + sacct(2, times="01:00:00|02:59:00|02:01:00"), 1, "1 x negative runtime (first at line 3)"),
    "unknown state": (HELIOS + helios(1) + helios(2, "EXPLODED"), 1, "1 x unknown state (first at line 3)"),
    "unknown Slurm state": (SACCT + sacct(1) + sacct(2, "EXPLODED"), 1, "1 x unknown state (first at line 3)"),
    "unfinished": (SACCT + sacct(1) + sacct(2, "RUNNING"), 1, "1 x not finished when the log was taken (first at line 3)"),
    "2147483647 memory": (SACCT + sacct(1, mem="2147483647M"), 1, "mem_mib: requests larger than any machine are treated as no request"),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLD)
def test_rows_that_cannot_be_used_are_counted_and_told(what: str, run: Answer) -> None:
    content, kept, told = TOLD[what]
    code, _, err = run(content)
    assert (code, "Traceback" in err) == (0, False)
    assert told in err
    code, out, _ = run(None, "workload", "info", "log", "--json")
    assert (code, json.loads(out)["jobs"]) == (0, kept)


def test_unlimited_time_is_an_unknown_request_not_a_number(run: Answer) -> None:
    rows = sacct(1, limit="UNLIMITED") + sacct(2, limit="Partition_Limit") + sacct(3)
    run(SACCT + rows, "workload", "convert", "log", "--out", "out.csv")
    written = Path("out.csv").read_text().splitlines()
    requested = written[1].split(",").index("requested")
    assert [line.split(",")[requested] for line in written[2:]] == ["", "", "3600.0"]


def test_damage_is_found_near_its_line(run: Answer) -> None:
    lines = "".join(job(number, number * 7919 % 100_003) for number in range(1, 100_001))
    packed = gzip.compress(lines.encode())
    _, _, err = run(packed[: len(packed) // 2])
    line = int(err.split("log:")[1].split(":")[0])
    assert 40_000 < line < 60_000


COMMANDS: dict[str, tuple[str, str]] = {  # what is typed -> error and hint (beginnings)
    "workload info lgo": ("no file or model named 'lgo'", "did you mean 'log'?"),
    "workload info lgo.swf": ("lgo.swf: no such file", "check the path"),
    "workload info .": (".: is a folder", "use the file of jobs in it"),
    "workload info log --format swff": ("unknown format 'swff'", "did you mean 'swf'? "),
    "workload info log --format helios": ("log:1: missing columns: job_id, ", "is this the right --format?"),
    "workload info log --jobs 0": ("jobs must be at least 1, not 0", "omit it to use all jobs"),
    "workload info log --tables log": ("log: swf supports no additional files, not 1", "formats that support --tables: philly, "),
    "workload info log --format swf --map a=submit": ("log: --map does not apply to swf", "use it with csv and parquet"),
    "workload info log --map a": ("--map 'a' is not COLUMN=FIELD", "for example --map walltime=runtime"),
    "workload info bursty --tables log": ("bursty is a model, not a log", "omit them"),
    "workload info burstyy": ("no file or model named 'burstyy'", "did you mean 'bursty'?"),
    "workload convert log --out folder": ("folder: the format is unclear from the file name", "use a name that ends in ."),
    "workload convert log --out no/such.swf": ("no/such.swf: cannot be written", "check the folder"),
    "workload generate bursty --set bursts=many --out x.csv": ("bursts", ""),
    "workload fit log --out m.toml": ("5 jobs are too few to fit a model", "at least 100 jobs"),
    "simulate --workload log --cluster flat:0 --policy fcfs": ("cluster 'flat:0': 0 is not between", "for example flat:256"),
    "simulate --workload log --cluster empty.toml --policy fcfs": ("empty.toml:1: cluster 'empty' has no nodes", "add a [[nodes]] table"),
    "simulate --workload log --cluster phily --policy fcfs": ("unknown cluster 'phily'", "did you mean 'philly'? "),
    "simulate --workload log --cluster 2x8:V10O --policy fcfs": ("unknown GPU kind 'V10O'", "did you mean 'V100-"),
    "simulate --workload log --policy fcsf": ("unknown order 'fcsf'", "did you mean 'fcfs'? "),
    "simulate --workload log --policy fcfs+easy:sfj": ("unknown order 'sfj'", "did you mean 'sjf'? "),
    "simulate --workload log --policy fcfs+esay": ("unknown backfill 'esay'", "did you mean 'easy'? "),
    "simulate --workload log --policy fcfs@pck": ("unknown placement 'pck'", "did you mean 'pack'? "),
    "simulate --workload log --policy fcfs --estimates orcle": ("unknown estimate 'orcle'", "did you mean 'oracle'? "),
    "simulate --workload log --policy fcfs --estimates noisy:x": ("estimate 'noisy:x' needs a number", ""),
    "simulate --workload log --policy fcfs --jobs 0": ("--jobs 0 is too few", "use 1 or more"),
    "simulate --workload log --policy fcfs --seed -1": ("--seed -1 is negative", "use 0 or more"),
    "simulate --workload bursty --policy fcfs": ("bursty does not describe its cluster", "add --cluster"),
    "evaluate --workload log --policy fcfs --score bsldd": ("unknown", ""),
    "compare nowhere": ("nowhere", ""),
    "report nowhere": ("nowhere", ""),
}  # fmt: skip


@pytest.mark.parametrize("typed", COMMANDS)
def test_wrong_names_and_values_are_answered_with_what_was_meant(typed: str, run: Answer, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    code, out, err = run(SWF, *typed.split())
    error, hint = COMMANDS[typed]
    lines = [line for line in err.splitlines() if line.startswith(("error: ", "hint: "))]
    assert (code, out, len(lines)) == (2, "", 2), err
    assert error in lines[0]
    assert hint in lines[1]
