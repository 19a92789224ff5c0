"""Quotas: whether a job is within its virtual cluster's guarantee, borrows, or would be over its maximum. Asked class by class."""

from __future__ import annotations

from queuewise.sim.compilation import inline
from queuewise.sim.state import QUOTAS, State, World

WITHIN, BORROWS, OVER = range(3)  # jobs within go before those that borrow; those over wait


@inline
def standing(w: World, s: State, c: int) -> int:
    """Where a job of the class would put its virtual cluster if it started now."""
    asked = w.class_tasks[c] * w.class_milli[c]
    if not w.policy[QUOTAS] or asked == 0:
        return WITHIN
    v = w.class_tenant[c]
    used = s.tenant_used[v] + asked
    if used > w.tenant_most[v]:
        return OVER
    return BORROWS if used > w.tenant_guaranteed[v] else WITHIN


@inline
def use_quota(w: World, s: State, c: int, sign: int) -> None:
    """A job of the class has started (+1) or stopped (-1)."""
    if w.policy[QUOTAS]:
        s.tenant_used[w.class_tenant[c]] += sign * w.class_tasks[c] * w.class_milli[c]
