"""How long jobs may be kept waiting for an agent: never without an expected start, and never for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuewise.policies.names import parse_bound

LONGEST_HOLD_S = 3 * 86_400.0  # since the submission, if the policy has no bound on waits
NO_START = "the engine sees no start for it"
HELD_LONG_ENOUGH = "it was kept waiting as long as may be"

Held = tuple[str, float, float]  # a job, its submission, and when it may start by itself (Unix times)


def divide_held(
    held: Iterable[Held], expected: Mapping[str, float | None] | None, *, now: float, grace_s: float, max_wait: str | None
) -> tuple[list[str], dict[str, str]]:
    """The jobs whose grace is about to end and that are to go on waiting, and those that are not to, with the reason.

    `expected` are the starts in the engine, None if they are not known: then nothing is held for longer than twice the grace.
    """
    longest = 2.0 * grace_s if expected is None else LONGEST_HOLD_S if max_wait is None else parse_bound(max_wait, "max_wait")
    kept: list[str] = []
    let_go: dict[str, str] = {}
    for job_id, submit, eligible in held:
        if eligible <= now:
            continue
        if expected is not None and expected.get(job_id) is None:
            let_go[job_id] = NO_START
        elif eligible < now + grace_s / 2:
            if now < submit + longest:
                kept.append(job_id)
            else:
                let_go[job_id] = HELD_LONG_ENOUGH
    return kept, let_go
