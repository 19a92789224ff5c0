"""For programs that search for policies: the figures of a policy file over the quick suite, in seconds.

    from queuewise.evolve import evaluate
    evaluate("candidate.py")  # {"score": 1.83, "artefacts": {...}}

The score is how many times better than `fcfs+easy` the policy is, by the geometric mean of bounded slowdown and wait over the tasks:
the higher, the better. A file that does not work has the score 0, and the reason among the artefacts.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

from queuewise.errors import QueuewiseError
from queuewise.evaluation.suite import REFERENCE, run_suite
from queuewise.policies.user_code import HOLD, find_user_code

BACKFILL = "+easy"  # of a function; a class decides by itself


def evaluate(path: str | Path, *, name: str | None = None, backfill: str = BACKFILL) -> dict[str, Any]:
    """Score a policy file. `name` is that of its function or class; without it, it is `score`, or the only one."""
    began = time.perf_counter()
    try:
        policy = _policy(Path(path), name, backfill)
        found = run_suite([policy], quick=True)
    except QueuewiseError as error:
        return {"score": 0.0, "artefacts": {"error": str(error), "seconds": time.perf_counter() - began}}
    mine = [one for one in found.outcomes if one.policy == policy]
    tasks = {one.task: {**one.means, "max_wait": one.max_wait_s} for one in mine}
    reference = {one.task: one.means for one in found.outcomes if one.policy == REFERENCE}
    artefacts = {"policy": policy, "tasks": tasks, REFERENCE: reference, "seconds": time.perf_counter() - began}
    return {"score": 1.0 / found.ratio(policy), "artefacts": artefacts}


def _policy(path: Path, name: str | None, backfill: str) -> str:
    own = find_user_code(f"{path}:{name or _only_name(path)}")
    return own.reference if own.is_class else f"{own.reference}{backfill}"


def _only_name(path: Path) -> str:
    """`score`, or the only function or class of the file that is not private and holds no jobs back."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return "score"  # find_user_code says what is wrong
    made = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = [one for one in made if not one.startswith("_") and not one.endswith(HOLD)]
    if "score" in names or len(names) != 1:
        return "score"
    return names[0]
