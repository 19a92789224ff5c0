"""The parameters of Slurm's scheduling loops, from the output of `scontrol show config` (a slurm.conf will do, too).

Only SchedulerType and SchedulerParameters are read. What is not given has Slurm's default. docs/simulator.md says what is done with each.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path

from queuewise.errors import InputError
from queuewise.regular_files import check_regular
from queuewise.sim.backfill import SlurmLoops

DISABLED = -1.0  # of an interval
INTERVALS = ("bf_interval", "sched_interval")
DEFAULTS = {
    "bf_interval": 30.0,  # seconds
    "bf_max_job_test": 500.0,
    "bf_window": 1440.0,  # minutes
    "bf_resolution": 60.0,  # seconds
    "default_queue_depth": 100.0,
    "sched_interval": 60.0,  # seconds
}
# Parameters that change decisions, too, and are not modelled. 0, where it can be given, is Slurm's default and changes nothing.
NOT_MODELLED = (
    "assoc_limit_stop", "bf_busy_nodes", "bf_job_part_count_reserve", "bf_max_job_array_resv", "bf_max_job_assoc", "bf_max_job_part",
    "bf_max_job_start", "bf_max_job_user", "bf_max_job_user_part", "bf_max_time", "bf_min_age_reserve", "bf_min_prio_reserve",
    "bf_node_space_size", "bf_one_resv_per_job", "bf_running_job_reserve", "defer", "pack_serial_at_end", "partition_job_depth",
    "sched_max_job_start",
)  # fmt: skip
ENTRY = re.compile(r"^\s*(SchedulerType|SchedulerParameters)\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
NO_BACKFILL = "sched/builtin"


def slurm_loops(path: str) -> SlurmLoops:
    """The parameters in a file, or Slurm's defaults for the empty path."""
    return _defaults() if not path else _read(Path(path).expanduser(), _version(Path(path).expanduser()))


@cache
def _defaults() -> SlurmLoops:
    return _numbers(DEFAULTS)


def _version(path: Path) -> int:
    """Changes with the file."""
    check_regular(path)
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="scontrol show config > FILE writes it") from None


@cache
def _read(path: Path, version: int) -> SlurmLoops:
    """Read a file once, and say once what of it is not modelled."""
    try:
        entries = {name.lower(): value for name, value in ENTRY.findall(path.read_text(encoding="utf-8", errors="replace"))}
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="scontrol show config > FILE writes it") from None
    if not entries:
        hint = "use the output of scontrol show config"
        raise InputError("has neither SchedulerType nor SchedulerParameters in it", where=str(path), hint=hint)
    if entries.get("schedulertype") == NO_BACKFILL:
        raise InputError(f"SchedulerType is {NO_BACKFILL}, which does not backfill", where=str(path), hint="leave +slurm out of the policy")
    given = dict(_split(entry) for entry in entries.get("schedulerparameters", "(null)").split(",") if entry != "(null)")
    missing = [f"{name}={value}" if value else name for name, value in given.items() if name in NOT_MODELLED and value != "0"]
    if missing:
        warnings.warn(f"{path}: not modelled by the backfill rule slurm: {', '.join(missing)}", stacklevel=2)
    return _numbers(DEFAULTS | {name: _number(path, name, value) for name, value in given.items() if name in DEFAULTS})


def _split(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name.strip().lower(), value.strip()


def _number(path: Path, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if name in INTERVALS and value == DISABLED:
        return float("inf")
    if not 0 < value < float("inf"):
        raise InputError(f"{name}={text} is not a number above 0", where=str(path), hint=f"Slurm's default is {DEFAULTS[name]:g}")
    return value


def _numbers(given: dict[str, float]) -> SlurmLoops:
    return SlurmLoops(
        backfill_interval=given["bf_interval"],
        most_planned=max(int(given["bf_max_job_test"]), 1),
        window=given["bf_window"] * 60.0,
        resolution=given["bf_resolution"],
        main_depth=max(int(given["default_queue_depth"]), 1),
        main_interval=given["sched_interval"],
    )
