"""The five published schemes as settings, named after their repositories.

docs/mdp.md lists how each published program differs.
"""

from __future__ import annotations

from typing import Any

from queuewise.envs.rewards import Term
from queuewise.errors import unknown_name

PRESETS: dict[str, dict[str, Any]] = {
    "gpu-optimizer": {
        "problem": "job",
        "start": "empty",
        "window": 50,
        "estimates": "oracle",
        "lookahead": "sorted",
        "time_scale_s": 1e4,
        "horizon_factor": 1.3,
        "max_steps": 2000,
        "one_event": True,
        "illegal": "wait",
        "reward": (
            Term(name="completed_work", weight=1.0, per=("work",)),
            Term(name="work_behind", weight=1.0, per=("horizon", "work")),
            Term(name="noop_work", weight=0.05, per=("work",)),
            Term(name="time_left", weight=1.0, per=("horizon",)),
            Term(name="undone", weight=1.0, per=("work",)),
        ),
    },
    "drl-scheduler": {
        "problem": "job",
        "start": "empty",
        "window": 16,
        "estimates": "oracle",
        "placement": "fastest",
        "time_scale_s": 15_000.0,
        "window_order": "priority",
        "lookahead": "off",
        "illegal": "wait",
        "reward": (
            Term(name="priority_completion", weight=50.0),
            Term(name="age", weight=0.05 / 1000),
            Term(name="utilisation", weight=1.5),
            Term(name="jct", weight=0.3),
            Term(name="illegal", weight=0.1),
        ),
    },
    "lsf": {
        "problem": "host",
        "start": "empty",
        "window": 1,
        "backfill": "none",
        "lookahead": "off",
        "reward": (
            Term(name="elapsed", weight=1.0),
            Term(name="started", weight=0.02),
            Term(name="host_use", weight=0.05),
            Term(name="host_use_squared", weight=0.02),
        ),
    },
    "rltune": {
        "problem": "job",
        "start": "empty",
        "window": 128,
        "dispatch": "commit",
        "estimates": "oracle",
        "placement": "tier1",
        "lookahead": "off",
        "pay": "terminal",
        "baseline": {"policy": "fcfs", "metric": "bounded_slowdown"},
        "reward": (Term(name="relative", weight=1.0),),
    },
    "rlscheduler": {
        "problem": "job",
        "start": "empty",
        "window": 128,
        "dispatch": "commit",
        "placement": "first",
        "lookahead": "off",
        "time_scale_s": 12 * 3600.0,
        "pay": "terminal",
        "reward": (Term(name="bounded_slowdown", weight=1.0, per=("jobs",)),),
    },
}


def preset(name: str) -> dict[str, Any]:
    """The settings of a published scheme. Raises if the name is unknown."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return dict(PRESETS[name])
