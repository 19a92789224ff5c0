"""The observation vectors of published schedulers, as options such as `view="rltune"`.

docs/mdp.md gives the formulas and the differences. A view has a name and a shape in `features`, rows with the features
that never change (`lay_out_view`), and a kernel that writes the rest. The compiled entry `publish` is separate, so
users of tokens need not compile it. Every step copies the rows in full: published views are for comparison, tokens are
fast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.envs import columns
from queuewise.envs.class_fit import class_fits, machine_stamp, sum_free
from queuewise.envs.columns import EpisodeState, Task, as_episode_state, as_frame, as_output, as_task
from queuewise.envs.features import HOST_AT, JOB_AT, NUM_HOST_FIXED, NUM_JOB_FIXED, ROW_WIDTH, VIEWS
from queuewise.envs.observation import observe_lookahead, shown_jobs
from queuewise.sim import placement
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.machine import WHOLE, slots
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.core.table_types import view
from queuewise.sim.core.tables import F32, F64, I64
from queuewise.sim.placement.tiers import fits_second_tier
from queuewise.workload.jobs import Workload

GPU_OPTIMIZER, DRL_SCHEDULER, LSF, RLTUNE, RLSCHEDULER = range(1, len(VIEWS))  # 0: tokens
ALMOST_ONE, ALMOST_ZERO = 1.0 - 1e-5, 1e-5
LONGEST_WAIT_S = 12 * 3600.0  # of rltune and rlscheduler
MOST_PRIORITY = 10.0  # of gpu-optimizer
HIGHEST_LEVEL = 5.0  # of drl-scheduler's priorities
LONG_QUEUE = 200.0  # of drl-scheduler
POOL_VALUES = 4  # per class in EpisodeState.class_pool: free GPUs, all GPUs, share of partly used nodes, ways
FREE, ALL, PARTIAL, WAYS = range(POOL_VALUES)


def lay_out_view(name: str, workload: Workload, cluster: Cluster, estimate: F64, time_scale_s: float) -> F32:
    """[(1+J)*width] rows of the features that never change. The first row is for a slot without a job."""
    if name not in ROW_WIDTH:
        return np.zeros(1, np.float32)
    gpus = workload.num_tasks * workload.gpu_milli / float(WHOLE)
    length = np.minimum(estimate / time_scale_s, 1.0)
    share = np.minimum(gpus / max(cluster.num_gpus, 1), 1.0)
    nothing = np.zeros(len(workload))
    if name == "gpu-optimizer":
        empty, columns = np.zeros(4), [length, np.clip(workload.priority / MOST_PRIORITY, 0.0, 1.0), share, nothing]
    elif name == "drl-scheduler":
        empty, columns = np.zeros(4), [np.clip(workload.priority / HIGHEST_LEVEL, 0.0, 1.0), length * share, share, length]
    elif name == "rltune":
        empty = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
        of_node = np.minimum(gpus / max(int(cluster.node_gpus.max()), 1), ALMOST_ONE)
        columns = [nothing, of_node, nothing, nothing, nothing, nothing, nothing]
    else:
        empty = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
        limited = cluster.node_mem_mib[cluster.node_mem_mib != UNLIMITED]
        memory = np.where(workload.mem_mib > 0, workload.mem_mib / max(int(limited.max(initial=0)), 1), 1.0)
        size = workload.size / max(cluster.num_gpus or (cluster.num_cores if cluster.num_cores < np.inf else cluster.num_nodes), 1)
        known = [_place(column, number) for column, number in (
            (workload.user, len(workload.users)), (workload.group, len(workload.groups)), (workload.job_name, 0),
        )]  # fmt: skip
        columns = [nothing, *(np.minimum(column, ALMOST_ONE) for column in (length, size)), _capped(memory), *known, nothing]
    rows = np.concatenate([empty[None, :], np.column_stack(columns) if len(workload) else np.zeros((0, len(empty)))])
    return np.ascontiguousarray(rows, np.float32).ravel()


def _place(index: NDArray[np.int32], number: int) -> F64:
    """Position of a name in its list, scaled to (0, 1), or 1 if it is unknown."""
    return np.where(index >= 0, np.minimum((index + 1) / max(number, int(index.max(initial=0)) + 1), ALMOST_ONE), 1.0)


def _capped(share: F64) -> F64:
    """The share, limited to just below 1. Exactly 1 means unknown and is kept."""
    return np.where(share == 1.0, 1.0, np.minimum(share, ALMOST_ONE))


def pool_groups(world: World, name: str) -> I64:
    """[C] a number per class, equal for classes that may use the same nodes."""
    num_classes = int(world.sizes.num_classes)
    if name != "rltune":
        return np.zeros(1, np.int64)
    allows = world.class_allows.reshape(num_classes, -1)
    return np.unique(allows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


@entry
def publish(frame, envs) -> None:  # type: ignore[no-untyped-def]
    """Write the vectors of these envs. `begin_or_step` must have been called before."""
    f = as_frame(frame)
    for i in range(len(envs)):
        at = envs[i] * columns.LISTS
        w, m, s = as_world(f.lists[at]), as_machine(f.lists[at + 1]), as_state(f.lists[at + 3])
        k, p, o = as_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5]), as_output(f.lists[at + 6])
        _observe(w, m, s, k, p, o.observation)


@kernel
def _observe(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32) -> None:
    """Write the vector of the view. `note_window` must have been called before."""
    sum_free(w, m, s, p)
    window = k.config.window
    name = k.config.observation_view
    total = k.total[placement.BY_GPU]
    free = p.free[placement.BY_GPU] / total if total > 0.0 else 0.0
    if name == GPU_OPTIMIZER:
        _copy_rows(k, p, out, 0, 4)
        for q in range(shown_jobs(k, p)):
            out[4 * q + 3] = np.float32(min((s.clock.now - p.row_submit[q]) / max(k.scale.shown_horizon, 1e-9), 1.0))
        observe_lookahead(s, k, p, out, 4 * window, True)
        out[4 * window + k.config.units] = np.float32(free)
        out[4 * window + k.config.units + 1] = np.float32(1.0 - free)
    elif name == DRL_SCHEDULER:
        out[0] = np.float32(free)
        _copy_rows(k, p, out, 1, 4)
        out[1 + 4 * window] = np.float32(min(p.count.waiting / LONG_QUEUE, 1.0))
    elif name == LSF:
        _observe_lsf(w, m, k, p, out)
    elif name == RLTUNE:
        _copy_rows(k, p, out, 0, 7)
        _observe_rltune(w, m, s, k, p, out)
    else:
        _copy_rows(k, p, out, 0, 8)
        for q in range(shown_jobs(k, p)):
            out[8 * q] = np.float32(min((s.clock.now - p.row_submit[q]) / LONGEST_WAIT_S, ALMOST_ONE))
            out[8 * q + 7] = np.float32(ALMOST_ONE if class_fits(w, m, s, p, p.row_class[q]) else ALMOST_ZERO)


@inline
def _copy_rows(k: Task, p: EpisodeState, out: F32, at: int, width: int) -> None:
    shown = shown_jobs(k, p)
    for q in range(k.config.window):
        source = (1 + p.waiting[q]) * width if q < shown else 0
        for f in range(width):
            out[at + q * width + f] = k.published[source + f]


@kernel
def _observe_lsf(w: World, m: Machine, k: Task, p: EpisodeState, out: F32) -> None:
    hosts = k.config.host_slots
    for n in range(hosts):
        real = n < w.sizes.num_nodes
        inverse = n * columns.RESOURCES
        out[4 * n] = np.float32((w.node_cpu[n] - m.free_cpu[n]) * k.node_inverse[inverse + placement.BY_CPU] if real else 0.0)
        out[4 * n + 1] = np.float32((w.node_mem[n] - m.free_mem[n]) * k.node_inverse[inverse + placement.BY_MEM] if real else 0.0)
        for f in range(2):
            out[4 * n + 2 + f] = k.host_token[n * NUM_HOST_FIXED + HOST_AT.cores_norm + f] if real else np.float32(0.0)
    gang = p.count.gang
    for f in range(2):
        out[4 * hosts + f] = k.token[gang * NUM_JOB_FIXED + JOB_AT.cpu + f] if gang != columns.NOBODY else np.float32(0.0)


@kernel
def _update_pool(w: World, m: Machine, s: State, p: EpisodeState, c: int) -> None:
    """Update EpisodeState.class_pool of class c."""
    stamp = machine_stamp(s, p)
    if p.class_pool_stamp[c] == stamp:
        return
    p.class_pool_stamp[c] = stamp
    free = 0
    total = 0
    nodes = 0
    partial = 0
    roomy = 0
    for i in range(w.class_pool_first[c], w.class_pool_first[c + 1]):
        pool = w.class_pools[i]
        for at in range(w.pool_first[pool], w.pool_first[pool + 1]):
            n = w.pool_nodes[at]
            nodes += 1
            free += m.free_milli[n]
            total += w.node_gpus[n] * WHOLE
            partial += 0 < m.free_milli[n] < w.node_gpus[n] * WHOLE
            room = min(slots(w, m, c, n), w.class_tasks[c])
            if room > 0:
                s.scratch_nodes[roomy] = room
                roomy += 1
    at = c * POOL_VALUES
    p.class_pool[at + FREE] = free / WHOLE
    p.class_pool[at + ALL] = total / WHOLE
    p.class_pool[at + PARTIAL] = partial / max(nodes, 1)
    ways = _first_tier_ways(s, roomy, w.class_min_nodes[c], w.class_tasks[c])
    p.class_pool[at + WAYS] = float(ways + fits_second_tier(w, m, s, c))


@inline
def _first_tier_ways(s: State, roomy: int, nodes: int, tasks: int) -> int:
    """How many sets of the fewest nodes can hold the gang: 0, 1, or 2 for several.

    State.scratch_nodes holds the nodes' rooms.
    """
    if roomy < nodes:
        return 0
    rooms = view(s.scratch_nodes, roomy)
    rooms.sort()
    most = 0
    for i in range(roomy - nodes, roomy):
        most += rooms[i]
    if most < tasks:
        return 0
    if roomy == nodes:
        return 1
    return 2 if most - rooms[roomy - nodes] + rooms[roomy - nodes - 1] >= tasks else 1


@kernel
def _observe_rltune(w: World, m: Machine, s: State, k: Task, p: EpisodeState, out: F32) -> None:
    shown = shown_jobs(k, p)
    for c in range(w.sizes.num_classes):
        p.group_demand[c] = 0.0
    for q in range(shown):
        c = p.row_class[q]
        _update_pool(w, m, s, p, c)
        p.group_demand[k.class_group[c]] += w.class_tasks[c] * w.class_milli[c] / WHOLE
    for q in range(shown):
        c = p.row_class[q]
        asks = w.class_tasks[c] * w.class_milli[c] / WHOLE
        free, total = p.class_pool[c * POOL_VALUES + FREE], p.class_pool[c * POOL_VALUES + ALL]
        ways = p.class_pool[c * POOL_VALUES + WAYS]
        base = 7 * q
        out[base] = np.float32(min((s.clock.now - p.row_submit[q]) / LONGEST_WAIT_S, ALMOST_ONE))
        out[base + 2] = np.float32(min(asks / max(free, 1e-5) / max(total, 1.0), ALMOST_ONE))
        ahead = free - p.group_demand[k.class_group[c]]
        out[base + 3] = np.float32(min(max((ahead + total) / (2.0 * total + 1e-5), 0.0), ALMOST_ONE))
        out[base + 4] = np.float32(p.class_pool[c * POOL_VALUES + PARTIAL])
        out[base + 5] = np.float32(min(ways / 3.0, ALMOST_ONE) if ways > 0.0 else ALMOST_ZERO)
        out[base + 6] = np.float32(ALMOST_ZERO if ways == 0.0 else ALMOST_ONE if ways == 1.0 else 1.5 * ALMOST_ONE)
