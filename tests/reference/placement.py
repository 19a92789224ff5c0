"""Placement rules: where the tasks of a job go ("Placement" of the normative page)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from queuewise.workload.jobs import Workload
from reference.orders import MASK, mix
from reference.state import WHOLE, Demand, Job, Machine, Piece, State, fewest_nodes

Choice = tuple[int, int]  # node, tasks it gets


@dataclass
class Placer:
    """One placement rule with what it needs beyond job and state."""

    machine: Machine
    rule: str
    option: str | None
    seed: int
    types: list[tuple[Demand, int]]  # FGD's task types and their weights
    asleep: Callable[[int], bool] = lambda n: False  # whether node n sleeps at this moment
    budget: float = math.inf  # milliwatts that jobs may draw
    starts: int = 0  # runs started so far in this simulation

    def fits(self, job: Job, state: State) -> bool:
        """Whether the rule can place the job in this state, within the power budget."""
        return self.place(job, state) is not None if self.budget < math.inf else any(self._has_room(size, state) for size in job.sizes)

    def _has_room(self, job: Job, state: State) -> bool:
        if self.rule in TIERS:
            return self._tier_choices(job, state) is not None
        fewest_now = fewest_nodes(job.demand.all_slots(state), job.num_tasks)
        if fewest_now is None:
            return False
        if self.rule == "pack" and self.option is not None:
            assert job.fewest is not None
            return fewest_now <= job.fewest + int(self.option)
        return True

    def place(self, job: Job, state: State) -> list[Piece] | None:
        """The pieces of the job where the rule puts it, an elastic one in the greatest size that fits; None if none does.

        The state stays as it is.
        """
        return next((pieces for size in job.sizes if (pieces := self.place_size(size, state)) is not None), None)

    def place_size(self, job: Job, state: State) -> list[Piece] | None:
        """The same with just so many tasks."""
        if not self._has_room(job, state):
            return None
        trial = state.copy()
        if self.rule in TIERS:
            pieces = []
            for n, tasks in self._tier_choices(job, state) or []:
                pieces += put(job.demand, trial, n, tasks, most_free=False)
        elif self.rule == "fgd":
            pieces = self._place_by_fragments(job, trial)
        else:
            pieces = self._place_node_by_node(job, trial)
        if trial.drawn > self.budget:
            return None
        return pieces if job.demand.is_share else merge_by_node(pieces)

    def never_fits(self, job: Job) -> bool:
        """Whether the tiers, which keep a gang in one domain, have no place for the job on the empty cluster."""
        return self.rule in TIERS and not any(domain_fewest(size, domain) for size in job.sizes for domain in domains(self.machine))

    def _tier_choices(self, job: Job, state: State) -> list[Choice] | None:
        return tier_choices(job, state, balance_first=self.option == "balance", lowest=self.rule == "tier1")

    def _place_node_by_node(self, job: Job, trial: State) -> list[Piece]:
        pieces: list[Piece] = []
        remaining, draw = job.num_tasks, 0
        kind = self._cheapest_kind(job, trial) if self.rule == "cheapest" and job.demand.gpu else None
        rule = "fastest" if self.rule == "cheapest" and job.demand.gpu and kind is None else self.rule
        while remaining:
            slots = {n: count for n, count in enumerate(job.demand.all_slots(trial)) if count >= 1 and kind in (None, self.machine.kind[n])}
            if self.rule == "random":
                u = mix((mix(self.seed & MASK ^ mix(self.starts)) + draw) & MASK)
                chosen = list(slots)[u % len(slots)]
                draw += 1
            else:
                key = KEYS[rule]
                chosen = min(slots, key=lambda n: (key(job, trial, n, slots[n], remaining), self.asleep(n), n))
            tasks = 1 if self.rule == "spread" else min(remaining, slots[chosen])
            pieces += put(job.demand, trial, chosen, tasks, most_free=self.rule == "spread")
            remaining -= tasks
        return pieces

    def _cheapest_kind(self, job: Job, state: State) -> str | None:
        """The GPU kind with the least watts ÷ speed of those that hold the whole gang, ties to the lowest node."""
        slots = job.demand.all_slots(state)
        nodes: dict[str, list[int]] = defaultdict(list)
        for n, name in enumerate(self.machine.kind):
            if name is not None and job.caps[n]:
                nodes[name].append(n)
        holding = [name for name, some in nodes.items() if sum(slots[n] for n in some) >= job.num_tasks]
        return min(
            holding,
            key=lambda name: (job.machine.active_gpu_watts(nodes[name][0]) / job.speed(nodes[name][0]), nodes[name][0]),
            default=None,
        )

    def _place_by_fragments(self, job: Job, trial: State) -> list[Piece]:
        pieces = []
        for _ in range(job.num_tasks):
            options = []
            for n in range(self.machine.num_nodes):
                if job.demand.slots(trial, n) < 1:
                    continue
                for piece in single_task_options(job.demand, trial, n):
                    after = trial.copy()
                    after.take([piece], job.demand)
                    growth = self._fragments(after, n) - self._fragments(trial, n)
                    options.append((growth, self.asleep(n), n, piece.gpus, piece))
            best = min(options)[-1]
            trial.take([best], job.demand)
            pieces.append(best)
        return pieces

    def _fragments(self, state: State, n: int) -> int:
        """Σ over the task types of weight × fragment of node n."""
        return sum(weight * fragment(state, n, demand) for demand, weight in self.types)


# --- keys of the node-by-node rules: (job, state, node, its slots, remaining tasks) -> key


def primary(job: Job, state: State, n: int) -> int:
    """Free amount of the primary resource of node n."""
    if job.demand.gpu:
        return sum(state.gpus[n])
    return state.cpu[n] if job.demand.cpu else state.mem[n]


def pack_key(job: Job, state: State, n: int, slots: int, remaining: int) -> Any:
    if slots >= remaining:
        return (0, 0, primary(job, state, n))
    return (1, -slots, primary(job, state, n))


def spread_key(job: Job, state: State, n: int, slots: int, remaining: int) -> Any:
    total = primary(job, job.machine.total, n)
    return (total - primary(job, state, n)) / total


def fastest_key(job: Job, state: State, n: int, slots: int, remaining: int) -> Any:
    return (-job.speed(n), pack_key(job, state, n, slots, remaining))


def cheapest_key(job: Job, state: State, n: int, slots: int, remaining: int) -> Any:
    gpu_watts = job.demand.gpu / 1000 * job.machine.active_gpu_watts(n)
    cpu_watts = job.demand.cpu / 1000 * float(job.machine.cluster.node_core_watts[n])
    return ((gpu_watts + cpu_watts) / job.speed(n), pack_key(job, state, n, slots, remaining))


KEYS: dict[str, Callable[[Job, State, int, int, int], Any]] = {
    "first": lambda job, state, n, slots, remaining: n,
    "pack": pack_key,
    "best": pack_key,
    "spread": spread_key,
    "fastest": fastest_key,
    "cheapest": cheapest_key,
}

RULES = (*KEYS, "random", "tier", "tier1", "fgd")


# --- which GPUs


def put(demand: Demand, state: State, n: int, tasks: int, *, most_free: bool) -> list[Piece]:
    """Put tasks on node n one after the other, taking them from the state; one piece a task."""
    pieces = []
    for _ in range(tasks):
        gpus = (share_gpu(demand, state, n, most_free=most_free),) if demand.is_share else lowest_free(demand, state, n)
        piece = Piece(n, 1, gpus)
        state.take([piece], demand)
        pieces.append(piece)
    return pieces


def share_gpu(demand: Demand, state: State, n: int, *, most_free: bool) -> int:
    """The GPU with the least (or most) free milli that still holds the share, ties to the lowest number."""
    free = state.gpus[n]
    holding = [g for g in range(len(free)) if free[g] >= demand.gpu]
    return min(holding, key=lambda g: (-free[g] if most_free else free[g], g))


def lowest_free(demand: Demand, state: State, n: int) -> tuple[int, ...]:
    """The lowest-numbered wholly free GPUs that one task of whole GPUs (or of none) takes."""
    wholly_free = [g for g, free in enumerate(state.gpus[n]) if free == WHOLE]
    return tuple(wholly_free[: demand.gpu // WHOLE])


def merge_by_node(pieces: list[Piece]) -> list[Piece]:
    """One piece a node."""
    tasks: Counter[int] = Counter()
    gpus: defaultdict[int, list[int]] = defaultdict(list)
    for piece in pieces:
        tasks[piece.node] += piece.tasks
        gpus[piece.node] += piece.gpus
    return [Piece(n, tasks[n], tuple(sorted(gpus[n]))) for n in sorted(tasks)]


# --- tier


Domain = frozenset[int]  # nodes
TIERS = ("tier", "tier1")


def domains(machine: Machine) -> list[Domain]:
    """The nodes of each partition, if no node is in two of them; otherwise all nodes."""
    if any(len(names) != 1 for names in machine.partitions):
        return [frozenset(range(machine.num_nodes))]
    named = [partition.name for partition in machine.cluster.partitions]
    return [frozenset(n for n, names in enumerate(machine.partitions) if name in names) for name in named]


def domain_fewest(job: Job, domain: Domain) -> int | None:
    """The nodes that the gang needs in this domain while it is empty, None if it does not fit there."""
    return fewest_nodes((cap for n, cap in enumerate(job.caps) if n in domain), job.num_tasks)


def tier_choices(job: Job, state: State, *, balance_first: bool = False, lowest: bool = False) -> list[Choice] | None:
    """The tasks each node gets: in the first domain that has a place in the lowest tier, not two nodes above another."""
    fewest = {domain: count for domain in domains(job.machine) if (count := domain_fewest(job, domain)) is not None}
    used = [domain for domain, count in fewest.items() if count <= min(fewest.values()) + 1]
    all_free = job.demand.all_slots(state)
    for more, frag_limit in ((0, None),) if lowest else ((0, None), (1, 0)):
        for domain in used:
            caps = tuple(cap if n in domain else 0 for n, cap in enumerate(job.caps))
            free = tuple(room if n in domain else 0 for n, room in enumerate(all_free))
            nodes = fewest[domain] + more
            if lowest:
                found = lowest_choices(free, job.num_tasks, nodes)
            else:
                found = least_tier(caps, free, job.num_tasks, nodes, frag_limit, balance_first=balance_first)
            if found is not None:
                return found
    return None


def lowest_choices(free: tuple[int, ...], tasks: int, nodes: int) -> list[Choice] | None:
    """The lexicographically least placement of `tasks` on exactly `nodes` nodes."""

    @cache
    def finish(n: int, tasks_left: int, nodes_left: int) -> tuple[Choice, ...] | None:
        if nodes_left == 0:
            return () if tasks_left == 0 else None
        if n == len(free) or tasks_left < nodes_left or nodes_left > len(free) - n:
            return None
        for used in range(1, min(free[n], tasks_left) + 1):
            rest = finish(n + 1, tasks_left - used, nodes_left - 1)
            if rest is not None:
                return ((n, used), *rest)
        return finish(n + 1, tasks_left, nodes_left)

    found = finish(0, tasks, nodes)
    return None if found is None else list(found)


def least_tier(
    caps: tuple[int, ...], free: tuple[int, ...], tasks: int, nodes: int, frag_limit: int | None, *, balance_first: bool
) -> list[Choice] | None:
    """Among the placements of `tasks` on exactly `nodes` nodes with Δfrag ≤ frag_limit, the one with the least key.

    All placements are searched, node by node. Keys are sums over nodes, so of all ways to finish from node n with a
    given rest only the least matters: `finish` remembers it. The choices are part of the key, as its last resort.
    """

    def change(n: int, used: int) -> tuple[int, int, int]:
        """Δfrag, Δwaste, Δbalance of giving node n `used` tasks."""
        before, after, cap = free[n], free[n] - used, caps[n]
        frag = (0 < after < cap) - (0 < before < cap)
        waste = (cap - after) * (0 < after < cap) - (cap - before) * (0 < before < cap)
        return frag, waste, (cap - after) ** 2 - (cap - before) ** 2

    def key(frag: int, waste: int, balance: int) -> tuple[int, int, int]:
        return (balance, frag, waste) if balance_first else (frag, waste, balance)

    @cache
    def finish(n: int, tasks_left: int, nodes_left: int, frag_left: int) -> tuple[tuple[int, int, int], tuple[Choice, ...]] | None:
        """The least (key, choices) on nodes n, n+1, ... whose Δfrag is at most frag_left."""
        if nodes_left == 0:
            return ((0, 0, 0), ()) if tasks_left == 0 and frag_left >= 0 else None
        if n == len(caps) or tasks_left < nodes_left or nodes_left > len(caps) - n:
            return None
        ways = []
        without = finish(n + 1, tasks_left, nodes_left, frag_left)
        if without is not None:
            ways.append(without)
        for used in range(1, min(free[n], tasks_left) + 1):
            frag, waste, balance = change(n, used)
            rest = finish(n + 1, tasks_left - used, nodes_left - 1, frag_left - frag)
            if rest is not None:
                here = key(frag, waste, balance)
                ways.append(((here[0] + rest[0][0], here[1] + rest[0][1], here[2] + rest[0][2]), ((n, used), *rest[1])))
        return min(ways, default=None)

    no_limit = len(caps)  # Δfrag of a node is at most 1
    best = finish(0, tasks, nodes, no_limit if frag_limit is None else frag_limit)
    return None if best is None else list(best[1])


# --- fragmentation gradient descent


def task_types(workload: Workload, machine: Machine) -> list[tuple[Demand, int]]:
    """The distinct demands of the workload and how many tasks have them."""
    weights: Counter[tuple[int, int, int, int]] = Counter()
    for j in range(len(workload)):
        demand = (int(workload.gpu_milli[j]), int(workload.cpu_milli[j]), int(workload.mem_mib[j]), int(workload.kind_set[j]))
        weights[demand] += int(workload.num_tasks[j])
    return [(Demand(gpu, cpu, mem, machine.accepted(workload.kind_sets[ks], None)), w) for (gpu, cpu, mem, ks), w in weights.items()]


def fragment(state: State, n: int, demand: Demand) -> int:
    """Free GPU milli of node n that tasks of this type cannot use."""
    if demand.gpu == 0 or demand.slots(state, n) == 0:
        return sum(state.gpus[n])
    return sum(free for free in state.gpus[n] if free < min(demand.gpu, WHOLE))


def single_task_options(demand: Demand, state: State, n: int) -> list[Piece]:
    """Where on node n one task may go: each GPU that holds a share, otherwise the lowest free GPUs."""
    if demand.is_share:
        return [Piece(n, 1, (g,)) for g, free in enumerate(state.gpus[n]) if free >= demand.gpu]
    return [Piece(n, 1, lowest_free(demand, state, n))]
