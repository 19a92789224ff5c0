"""Conditions that restrict a cluster or extend jobs beyond a fixed size and runtime.

They are `outages` (failures, maintenance), `job_dependencies`, `quotas` of virtual clusters, `reserved_nodes`, the
`power_cap`, `sleeping` nodes and `resize` (elastic jobs that shrink and grow). This file declares their codes and
columns.

Axes: J jobs, N nodes, C demand classes, P pools, V virtual clusters or memberships.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.tables import F64, I8, I32, I64, Table, column

# PolicyFlags.resizes
SHRINKS, GROWS = 1, 2
# World.outage_kind
REPAIRED, FAILED_NODE, DRAINED, RESERVATION_ENDED = range(4)


class ConditionsWorld(Table):
    # Virtual clusters, see quotas.py
    class_tenant: I64 = column("classes")
    tenant_guaranteed: I64 = column("tenants", unit="GPU milli")
    tenant_most: I64 = column("tenants", unit="GPU milli")
    # Reservations, see reserved_nodes.py
    class_membership: I64 = column("classes", meaning="equal numbers for classes that are members of the same reservations")
    class_length: F64 = column("classes", unit="s", meaning="longest run, by the estimate and the worst runtime factor")
    blocked_first: I64 = column(meaning="offsets into blocked_start; membership v and node n at v*N + n")
    blocked_start: F64 = column(unit="s", meaning="start of each time for which others have reserved the node")
    blocked_end: F64 = column(unit="s")
    reservation_end: F64 = column(unit="s", meaning="when reservations end, ascending")
    # Dependencies, see job_dependencies.py
    next_first: I64 = column(meaning="offsets into next_job")  # [J+1 or 1]
    next_job: I64 = column(meaning="jobs that wait for the job")
    next_kind: I8 = column()
    next_delay: F64 = column(unit="s")
    ends_well: I8 = column(meaning="0: killed at its limit")  # [J or 1]
    # Power, see power_cap.py
    task_draw: I64 = column("classes", "pools", unit="mW", meaning="power that one task adds")
    # Outages and ends of reservations, in the order in which they happen
    outage_time: F64 = column(unit="s")
    outage_node: I64 = column()
    outage_kind: I64 = column()


class ConditionsState(Table):
    # Nodes that sleep, see sleeping.py
    idle_since: F64 = column("sleeping_nodes", unit="s", meaning="inf while a job is placed on the node")
    awake_at: F64 = column("sleeping_nodes", initial=-np.inf, unit="s", meaning="when the node woke or will wake from its last sleep")
    node_pieces: I64 = column("sleeping_nodes", initial=0, meaning="pieces of running jobs")
    # Dependencies, see job_dependencies.py
    unmet: I32 = column("dependent_jobs", meaning="number of conditions that the job still waits for")
    ready: F64 = column("dependent_jobs", initial=-np.inf, unit="s", meaning="when all conditions met so far take effect")
    awaits_others: I8 = column("dependent_jobs", initial=0, meaning="1: the job has arrived and waits for other jobs")
    never_ready: I8 = column("dependent_jobs", initial=0, meaning="1: the conditions can no longer be met")
    released: I32 = column("dependent_jobs", initial=0, meaning="jobs in the order in which they first joined their queues")
    cancelling: I64 = column("dependent_jobs", initial=0, meaning="jobs being cancelled")
    tenant_used: I64 = column("tenants", initial=0, unit="GPU milli", meaning="GPU milli held by running jobs, if there are quotas")
