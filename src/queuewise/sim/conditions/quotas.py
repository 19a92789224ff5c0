"""Quotas: how many GPUs each virtual cluster may hold. docs/simulator.md, "Quotas", defines the rules.

The first part prepares the arrays that kernels need. The second part contains the kernels, which work class by class.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.sim.core.compilation import inline
from queuewise.sim.core.state import State, World
from queuewise.sim.core.tables import I32, I64
from queuewise.workload.jobs import WHOLE_GPU, Workload, constant

NO_END = 1 << 60  # milli


@dataclass(frozen=True, eq=False)
class Tenants:
    """The virtual clusters. The last one is for jobs that belong to none."""

    of_job: I32  # [J]
    guaranteed: I64  # [V] GPU milli
    most: I64  # [V] GPU milli

    @classmethod
    def none(cls, workload: Workload) -> Tenants:
        """No quotas: one tenant without limits."""
        return cls(constant(0, len(workload), np.int32), np.full(1, NO_END), np.full(1, NO_END))

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster) -> Tenants:
        _check(workload, cluster)
        tenants = cluster.virtual_clusters
        number = {tenant.name: v for v, tenant in enumerate(tenants)}
        of_group = np.array([number.get(name, len(tenants)) for name in workload.groups] + [len(tenants)], np.int32)
        return cls(
            of_job=of_group[workload.group],  # UNKNOWN is -1, the last entry
            guaranteed=np.array([_milli(tenant.guaranteed_gpus) for tenant in tenants] + [0]),
            most=np.array([_milli(tenant.max_gpus) for tenant in tenants] + [NO_END]),
        )


def world_columns(tenants: Tenants) -> dict[str, NDArray[Any]]:
    return {"tenant_guaranteed": tenants.guaranteed.astype(np.int64), "tenant_most": tenants.most.astype(np.int64)}


def _milli(gpus: float) -> int:
    return NO_END if gpus == float("inf") else round(gpus * WHOLE_GPU)


def _check(workload: Workload, cluster: Cluster) -> None:
    tenants = cluster.virtual_clusters
    if not tenants:
        raise InputError(
            f"cluster {cluster.name!r} has no virtual clusters, so there are no quotas", hint="add [[virtual_clusters]] to its file"
        )
    name, times = Counter(tenant.name for tenant in tenants).most_common(1)[0]
    if times > 1:
        raise InputError(f"cluster {cluster.name!r} has {times} virtual clusters {name!r}", hint="give each a different name")
    for tenant in tenants:
        if tenant.max_gpus < tenant.guaranteed_gpus:
            raise InputError(
                f"virtual cluster {tenant.name!r} is guaranteed {tenant.guaranteed_gpus:g} GPUs but may have at most {tenant.max_gpus:g}",
                hint="raise max_gpus, or leave it out",
            )
    guaranteed = sum(tenant.guaranteed_gpus for tenant in tenants)
    if guaranteed > cluster.num_gpus:
        raise InputError(
            f"virtual clusters are guaranteed {guaranteed:g} GPUs, but cluster {cluster.name!r} has only {cluster.num_gpus}",
            hint="lower guaranteed_gpus; a virtual cluster can borrow more, up to max_gpus",
        )
    if not {tenant.name for tenant in tenants} & set(workload.groups):
        raise InputError(
            f"no job belongs to a virtual cluster of {cluster.name!r}: {', '.join(tenant.name for tenant in tenants)}",
            hint="a job belongs to the virtual cluster that has the name of the job's group",
        )


# Jobs within the guarantee go before jobs that borrow. Jobs over the maximum wait.
WITHIN, BORROWS, OVER = range(3)


@inline
def standing(w: World, s: State, c: int) -> int:
    """WITHIN, BORROWS or OVER: how a start of class c would leave its virtual cluster."""
    asked = w.class_tasks[c] * w.class_milli[c]
    if not w.policy.has_quotas or asked == 0:
        return WITHIN
    v = w.class_tenant[c]
    used = s.tenant_used[v] + asked
    if used > w.tenant_most[v]:
        return OVER
    return BORROWS if used > w.tenant_guaranteed[v] else WITHIN


@inline
def use_quota(w: World, s: State, c: int, sign: int) -> None:
    """Count a job of class c that has started (sign = 1) or stopped (sign = -1)."""
    if w.policy.has_quotas:
        s.tenant_used[w.class_tenant[c]] += sign * w.class_tasks[c] * w.class_milli[c]
