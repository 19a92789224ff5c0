"""How long jobs may be kept waiting for an agent: never without an expected start, and never for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from queuewise.policies.names import parse_bound

LONGEST_GRACE_S = 86_400  # how long a job may be kept back at its submission
LONGEST_HOLD_S = 3 * 86_400.0  # since the submission, if the policy has no bound on waits
NO_START = "the engine sees no start for it"
HELD_LONG_ENOUGH = "it was kept waiting as long as may be"


def grace_in_mark(seconds: str, usual_s: int) -> float:
    """The grace that the mark of a job names. Users can write marks, too: what no esub or plugin of ours has written is not believed."""
    believed = seconds.isdecimal() and len(seconds) < 10 and int(seconds) <= LONGEST_GRACE_S
    return float(seconds) if believed else float(usual_s)


@dataclass(frozen=True)
class HeldJob:
    """A job that waits for an agent. Times are Unix times."""

    job_id: str
    submit: float
    eligible: float  # when it may start by itself
    grace_s: float  # how long it was kept back at its submission, and is at every renewal


def divide_held(
    held: Iterable[HeldJob], expected: Mapping[str, float | None] | None, *, now: float, max_wait: str | None
) -> tuple[list[HeldJob], dict[str, str]]:
    """The jobs whose grace is about to end and that are to go on waiting, and those that are not to, with the reason.

    `expected` are the starts in the engine, None if they are not known: then nothing is held for longer than twice the grace.
    """
    bound = LONGEST_HOLD_S if max_wait is None else parse_bound(max_wait, "max_wait")
    kept: list[HeldJob] = []
    let_go: dict[str, str] = {}
    for one in held:
        if one.eligible <= now:
            continue
        if expected is not None and expected.get(one.job_id) is None:
            let_go[one.job_id] = NO_START
        elif one.eligible < now + one.grace_s / 2:
            if now < one.submit + (2.0 * one.grace_s if expected is None else bound):
                kept.append(one)
            else:
                let_go[one.job_id] = HELD_LONG_ENOUGH
    return kept, let_go
