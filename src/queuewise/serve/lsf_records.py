"""Jobs, hosts and queues of LSF, from `bjobs`, `bhosts` and `bqueues` with -o and -json. Every value is a text there.

Times have no year in older releases (`Dec 28 19:56`): they are the last such time before now. What is not understood is an error that
names the command, the job or host, and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from queuewise.errors import InputError
from queuewise.serve.holding import grace_in_mark

JOB_FIELDS = (
    "jobid", "jobindex", "stat", "queue", "user", "project", "submit_time", "start_time", "run_time", "runtimelimit", "slots",
    "nreq_slot", "exec_host",
    "gpu_alloc", "gpu_num", "memlimit", "pend_reason", "dependency", "job_priority", "nalloc_slot", "combined_resreq", "ask_hosts",
    "exclusive", "rsvid", "job_description", "specified_start_time",
)  # fmt: skip
HOST_FIELDS = ("host_name", "status", "max", "njobs", "run", "rsv", "ngpus", "ngpus_alloc", "total_mem", "available_mem")
QUEUE_FIELDS = ("queue_name", "status", "priority", "hosts")
WAITING, HELD, RUNNING, OVER = ("PEND",), ("PSUSP",), ("RUN", "USUSP", "SSUSP", "PROV"), ("DONE", "EXIT", "ZOMBI", "WAIT", "UNKWN")
OPEN = ("ok", "closed_Full")
MARK = "queuewise"  # how descriptions of jobs begin whose begin time is ours
GRACE = f"{MARK}-grace-"  # the description that the esub gives them; the seconds follow
GRACE_S = 300
MOST_GPUS = 1024  # of a host
SLACK_S = 120.0  # LSF counts begin times in minutes
SLOTS = ("SLOTS", "NREQ_SLOT", "NALLOC_SLOT")  # the first that says something
NOTHING = ("", "-", "N/A", "none", "unlimited")
UNITS_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_HOST = re.compile(r"(?:(\d{1,9})\*)?([A-Za-z0-9][\w.-]*)")
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGTP])?(?:[iB]?[bB](?:ytes)?)?", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:second\(s\)|seconds?|s)?")
_DATES = ("%b %d %H:%M:%S %Y", "%b %d %H:%M %Y", "%a %b %d %H:%M:%S %Y", "%Y-%m-%dT%H:%M:%S")
_WITHOUT_YEAR = ("%b %d %H:%M:%S", "%b %d %H:%M", "%a %b %d %H:%M:%S")
_MARKS = re.compile(r"\s+[LXEA]$")  # behind times: limit, estimate, exact …


@dataclass(frozen=True)
class LsfJob:
    job_id: str  # 12, or 12[3] for an element of an array
    state: str
    queue: str
    user: str
    project: str
    submit: float  # Unix time
    start: float | None
    limit_s: float | None
    slots: int
    gpus: int  # of the whole job
    mem_mib: int
    hosts: Mapping[str, int]  # slots by host
    gpus_on: Mapping[str, tuple[int, ...]]
    reason: str
    dependency: str
    priority: float
    asked_hosts: str = ""  # bsub -m
    resreq: str = ""
    reservation: str = ""
    exclusive: bool = False
    description: str = ""
    begin: float | None = None  # before which it does not start; Unix time

    @property
    def is_marked(self) -> bool:
        """Whether the esub has set its begin time."""
        return self.description == MARK or self.description.startswith(GRACE)

    @property
    def grace_s(self) -> float:
        """How long the esub has kept it back: its description says so."""
        return grace_in_mark(self.description.removeprefix(GRACE), GRACE_S)

    def begins_later(self, now: float) -> bool:
        """Whether its user has set the begin time."""
        return self.begin is not None and self.begin > (now + self.grace_s + SLACK_S if self.is_marked else now)


@dataclass(frozen=True)
class LsfQueue:
    name: str
    priority: float
    hosts: str  # "all", or a list


@dataclass(frozen=True)
class LsfHost:
    name: str
    status: str
    slots: int
    used_slots: int
    gpus: int
    used_gpus: int
    mem_mib: int  # 0: not known

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


def job_number(job_id: str | int) -> int:
    """What LSF's own interfaces call a job: the index of an array's element, as in 12[3], is in the upper half."""
    plain, _, index = str(job_id).partition("[")
    return int(plain) | int(index.rstrip("]") or 0) << 32


def read_lsf_jobs(text: str | bytes, now: float) -> list[LsfJob]:
    """The jobs in the output of `bjobs -u all -a -o '…' -json`."""
    return [_job(row, now) for row in _records(text, "bjobs")]


def read_lsf_hosts(text: str | bytes) -> list[LsfHost]:
    """The hosts in the output of `bhosts -o '…' -json`."""
    return [_host(row) for row in _records(text, "bhosts")]


def read_lsf_queues(text: str | bytes) -> dict[str, LsfQueue]:
    """The queues that are open and active, from the output of `bqueues -o '…' -json`."""
    return {
        (name := _field(row, "QUEUE_NAME", "bqueues")): LsfQueue(
            name, float(_number(row.get("PRIORITY", ""), "bqueues", "PRIORITY") or 0), _plain(row, "HOSTS") or "all"
        )
        for row in _records(text, "bqueues")
        if _text(row, "STATUS") in ("Open:Active", "")
    }


def _records(text: str | bytes, command: str) -> list[Mapping[str, str]]:
    hint = f"run {command} -o '…' -json with LC_ALL=C"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {str(error)[:100]}", where=command, hint=hint) from None
    rows = document.get("RECORDS") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise InputError("has no list RECORDS", where=command, hint=hint)
    found: list[Mapping[str, str]] = []
    for row in rows:
        if not isinstance(row, dict):
            raise InputError(f"a record is {row!r:.60}, not an object", where=command, hint=hint)
        if "ERROR" in row:  # a job that has left meanwhile
            continue
        found.append({str(key): "" if value is None else str(value) for key, value in row.items()})
    return found


def _job(row: Mapping[str, str], now: float) -> LsfJob:
    number = _field(row, "JOBID", "bjobs")
    index = _text(row, "JOBINDEX")
    job_id = f"{number}[{index}]" if index not in ("", "0", "-") and "[" not in number else number
    if not re.fullmatch(r"\d{1,18}(\[\d{1,9}\])?", job_id):
        raise InputError(f"JOBID is {job_id!r:.60}", where="bjobs", hint="give the output of one cluster, with jobid in -o")
    where = f"bjobs, job {job_id}"
    state = _field(row, "STAT", where)
    if state not in (*WAITING, *HELD, *RUNNING, *OVER):
        raise InputError(f"STAT is {state!r}", where=where, hint=f"states are {', '.join((*WAITING, *HELD, *RUNNING, *OVER))}")
    hosts = parse_hosts(_text(row, "EXEC_HOST"), where) if state in RUNNING else {}
    slots = next((found for key in SLOTS if (found := _number(_text(row, key), where, key)) is not None), None)
    begin = _plain(row, "SPECIFIED_START_TIME")
    submit = parse_time(_field(row, "SUBMIT_TIME", where), now, where)
    minutes = _number(_text(row, "RUNTIMELIMIT"), where, "RUNTIMELIMIT")
    start = _started(row, now, where) if state in RUNNING else None
    return LsfJob(
        job_id=job_id, state=state, queue=_field(row, "QUEUE", where), user=_text(row, "USER"),
        project=_text(row, "PROJ_NAME") or _text(row, "PROJECT"),
        submit=submit, start=start,
        limit_s=None if minutes is None else minutes * 60, slots=int(slots or sum(hosts.values()) or 1),
        gpus=int(_number(_text(row, "GPU_NUM"), where, "GPU_NUM") or 0), mem_mib=parse_mib(_text(row, "MEMLIMIT"), where),
        hosts=hosts, gpus_on=parse_gpus(_text(row, "GPU_ALLOC"), where) if state in RUNNING else {}, reason=_text(row, "PEND_REASON"),
        dependency=_text(row, "DEPENDENCY"), priority=float(_number(_text(row, "JOB_PRIORITY"), where, "JOB_PRIORITY") or 0),
        asked_hosts=_plain(row, "ASK_HOSTS"), resreq=_plain(row, "COMBINED_RESREQ"), reservation=_plain(row, "RSVID"),
        exclusive=_text(row, "EXCLUSIVE").upper() in ("Y", "YES"),
        description=_plain(row, "JOB_DESCRIPTION"), begin=parse_time(begin, now, where, ahead=True) if begin else None,
    )  # fmt: skip


def _started(row: Mapping[str, str], now: float, where: str) -> float | None:
    """When a job began to run: as it says, or by how long it has run."""
    text, ran = _text(row, "START_TIME"), parse_seconds(_text(row, "RUN_TIME"), where)
    if text not in NOTHING:
        return parse_time(text, now, where)
    return None if ran is None else now - ran


def _host(row: Mapping[str, str]) -> LsfHost:
    name = _field(row, "HOST_NAME", "bhosts")
    where = f"bhosts, host {name}"
    numbers = {key: int(_number(_text(row, key), where, key) or 0) for key in ("MAX", "NJOBS", "NGPUS", "NGPUS_ALLOC")}
    if numbers["NGPUS"] > MOST_GPUS:
        raise InputError(f"NGPUS is {numbers['NGPUS']}", where=where, hint=f"hosts with up to {MOST_GPUS:,} GPUs are understood")
    return LsfHost(
        name, _field(row, "STATUS", where), numbers["MAX"], numbers["NJOBS"], numbers["NGPUS"], numbers["NGPUS_ALLOC"],
        parse_mib(_plain(row, "TOTAL_MEM") or _text(row, "MAX_MEM"), where),
    )  # fmt: skip


# --- values


def parse_hosts(text: str, where: str = "bjobs") -> dict[str, int]:
    """`16*h1:h2:h2` as 16 slots on h1 and 2 on h2."""
    found: dict[str, int] = {}
    if text in NOTHING:
        return found
    for part in text.split(":"):
        match = _HOST.fullmatch(part.strip())
        if match is None:
            raise InputError(f"EXEC_HOST has {part!r}", where=where, hint="hosts look like h1:h2 or 16*h1")
        found[match[2]] = found.get(match[2], 0) + int(match[1] or 1)
    return found


def parse_gpus(text: str, where: str = "bjobs") -> dict[str, tuple[int, ...]]:
    """`h1:0,1;h2:0` as GPUs 0 and 1 of h1 and 0 of h2."""
    found: dict[str, tuple[int, ...]] = {}
    if text in NOTHING:
        return found
    for part in text.split(";"):
        host, colon, numbers = part.strip().partition(":")
        plain = [number.strip() for number in numbers.split(",")]
        if not host or not colon or not all(one.isdecimal() and len(one) < 10 and int(one) < MOST_GPUS for one in plain):
            raise InputError(f"GPU_ALLOC has {part!r:.60}", where=where, hint="GPUs look like h1:0,1;h2:0")
        found[host] = tuple(map(int, plain))
    return found


def parse_seconds(text: str, where: str = "bjobs") -> float | None:
    """`16038 second(s)` as 16038."""
    if text in NOTHING:
        return None
    match = _SECONDS.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no number of seconds", where=where, hint="for example 17, or 16038 second(s)")
    return float(match[1])


def parse_mib(text: str, where: str = "bjobs") -> int:
    """`5.2 Gbytes`, `9 Mbytes` or `512M` in MiB; 0 if there is none."""
    if text in NOTHING:
        return 0
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no amount of memory", where=where, hint="for example 9 Mbytes or 5.2 Gbytes")
    return int(float(match[1]) * UNITS_MIB[(match[2] or "M").upper()])


def parse_time(text: str, now: float, where: str = "bjobs", *, ahead: bool = False) -> float:
    """`Dec 28 19:56`, with or without a year, as Unix time. Without one it is the last such time that is not after tomorrow.

    One that lies `ahead` is the first such time that is not before yesterday.
    """
    plain = _MARKS.sub("", " ".join(text.split()))
    for form in _DATES:
        try:
            return datetime.strptime(plain, form).timestamp()
        except ValueError:
            continue
    present, day = datetime.fromtimestamp(now), timedelta(days=1)
    years = range(present.year, present.year + 9) if ahead else range((present + day).year, present.year - 9, -1)
    for form in _WITHOUT_YEAR:
        for year in years:  # a 29th of February may be eight years away
            try:
                found = datetime.strptime(f"{year} {plain}", f"%Y {form}")
            except ValueError:
                continue
            if (found >= present - day) if ahead else (found <= present + day):
                return found.timestamp()
    raise InputError(f"{text!r} is no time", where=where, hint="times look like Dec 28 19:56; run with LC_ALL=C")


def _field(row: Mapping[str, str], key: str, where: str) -> str:
    value = _text(row, key)
    if not value:
        raise InputError(f"has no {key}", where=where, hint=f"add {key.lower()} to -o")
    return value


def _text(row: Mapping[str, str], key: str) -> str:
    return row.get(key, "").strip()


def _plain(row: Mapping[str, str], key: str) -> str:
    value = _text(row, key)
    return "" if value in NOTHING else value


def _number(text: str, where: str, key: str) -> float | None:
    if text in NOTHING:
        return None
    plain = re.sub(r"/[\w.-]+$", "", text)  # a limit relative to a host model
    try:
        value = float(plain)
    except ValueError:
        raise InputError(f"{key} is {text!r}, not a number", where=where, hint="run with LC_ALL=C") from None
    if not 0 <= value < 1e12:
        raise InputError(f"{key} is {text!r}", where=where, hint="it must be a number from 0")
    return value
