"""A found rule as a function that people can read: in Python as a policy of one's own, in Lua for a site's own scripts.

The Lua function knows what is known when a job is submitted. So it leaves the age of jobs to the scheduler, does not know what fits, and
cannot hold jobs back.
"""

from __future__ import annotations

import math
from pathlib import Path

from queuewise.errors import InputError
from queuewise.policies.found_rules import NUMBERS, FoundRule

PYTHON = '''"""{about}

queuewise simulate --workload LOG --policy {name}:score{rest}
"""

import math


def score(job, now, cluster):
    runtime = math.log(max(job.estimate, 1.0) / 3600.0)
    width = math.log(max(job.width, 0.001))
    share = job.width / (cluster.gpus if cluster.gpus > 0 else cluster.cores)
    age = math.log1p(max(now - job.submit, 0.0) / {age_s!r})
{blocked}    return {polynomial} - {age!r} * age{plus_blocked}
'''
BLOCKED = """    missing = job.width - (cluster.free_gpus if cluster.gpus > 0 else cluster.free_cores)
    size = cluster.gpus if cluster.gpus > 0 else cluster.cores
    blocked = {blocked!r} + {blocked_share!r} * missing / size if missing > 0 else 0.0
"""
HOLD = """

def score_hold(job, now, cluster):
    runtime = max(job.estimate, 1.0)
    waited = max(now - job.submit, 0.0)
    size = cluster.gpus if cluster.gpus > 0 else cluster.cores
    left = (cluster.free_gpus if cluster.gpus > 0 else cluster.free_cores) - job.width
    if left < 0.0:
        return math.inf if waited < {guard!r} * runtime else 0.0
    if waited >= {hold_s!r}:
        return 0.0
    wanted = {hold!r} + {hold_log_runtime!r} * math.log(runtime / 3600.0) + {hold_share!r} * job.width / size
    reserve = min(max(wanted, 0.0), 0.9) / (1.0 + {hold_age!r} * waited / runtime)
    return math.inf if left < reserve * (size - job.width) else 0.0
"""
LUA = """-- {about}
--
-- The first part of the score, without the age of the job: give the age its weight in the scheduler's own settings.
-- estimate_s: seconds; width: GPUs, or cores of a job without GPUs; machine: all GPUs or cores of the cluster.
-- Returns a whole number that is higher for jobs that should go first, such as a site factor of Slurm.
function queuewise_priority(estimate_s, width, machine)
  local runtime = math.log(math.max(estimate_s, 1.0) / 3600.0)
  local share = width / machine
  local width = math.log(math.max(width, 0.001))
  return -math.floor(1000.0 * ({polynomial}) + 0.5)
end
"""


def export_rule(rule: FoundRule, path: Path) -> str:
    """The text of a file with the rule: Python or Lua, by the name of the file."""
    numbers = dict(zip(NUMBERS, rule.numbers, strict=True))
    about = f"Found by queuewise learn: {rule.formula}"
    if path.suffix == ".lua":
        return LUA.format(about=about, polynomial=_polynomial(numbers, "^"))
    if path.suffix != ".py":
        raise InputError(f"{path.name} is neither a .py nor a .lua file", where=str(path), hint="choose one of these endings")
    rest = f"{':' + rule.order_estimates if rule.order_estimates else ''}{rule.scheduling}"
    age_s = 3600.0 * math.exp(numbers["log_age_hours"])
    blocked = {"blocked": BLOCKED.format(**numbers), "plus_blocked": " + blocked"} if rule.watches else {"blocked": "", "plus_blocked": ""}
    about_it = {"about": about, "name": path.name, "rest": rest, "age_s": age_s, "polynomial": _polynomial(numbers, "**")}
    made = PYTHON.format(**numbers | about_it | blocked)
    hold_s = 3600.0 * numbers["hold_hours"] or 1e99
    return made + HOLD.format(**numbers, hold_s=hold_s) if rule.holds else made


def _polynomial(numbers: dict[str, float], power: str) -> str:
    terms = {
        "log_runtime": "runtime", "log_width": "width", "log_runtime_squared": f"runtime{power}2", "log_width_squared": f"width{power}2",
        "log_runtime_log_width": "runtime * width", "share": "share", "share_log_runtime": "share * runtime",
    }  # fmt: skip
    return " + ".join(f"{numbers[name]!r} * {term}" for name, term in terms.items() if numbers[name]) or "0.0"
