"""What will be free when: the free times of GPUs that EASY goes by, and the profile of conservative backfill, against plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.sim.backfill import easy, profile
from queuewise.workload.jobs import Workload
from uncompiled.simulation import Simulation, laid_out

NODE_GPUS = (2, 4, 4, 3)
TIMES = (1.0, 2.0, 2.0, 3.5, 8.0)
SHAPES = ((1, 1), (3, 1), (2, 2), (1, 3), (2, 4), (5, 1))  # tasks, GPUs of each: classes of jobs


def mixed_cluster() -> Cluster:
    return build("mixed", [NodeGroup(1, gpus=gpus, kind="T4") for gpus in NODE_GPUS])


def simulation(policy: str) -> Simulation:
    """One job of each shape, none of which has started; node 1 and node 2 form one pool."""
    tasks, gpus = np.array(SHAPES, np.int32).T
    num = len(SHAPES)
    workload = Workload(np.zeros(num), np.full(num, 5.0), tasks, gpus * 1000)
    return laid_out(workload, mixed_cluster(), policy, workload.runtime)


# --- free times


@dataclass
class FreeTimes:
    """The kernels and the model side by side: when each busy GPU of each node is expected to be free again."""

    sim: Simulation = field(default_factory=lambda: simulation("fcfs+easy"))
    busy: list[list[float]] = field(default_factory=lambda: [[] for _ in NODE_GPUS])

    def book(self, n: int, number: int, until: float) -> None:
        number = min(number, NODE_GPUS[n] - len(self.busy[n]))
        if number:
            easy.book_gpus(self.sim.world, self.sim.state, n, number, until)
            self.busy[n] += [until] * number

    def unbook(self, n: int, number: int, until: float) -> None:
        number = min(number, self.busy[n].count(until))
        if number:
            easy.unbook_gpus(self.sim.world, self.sim.state, n, number, until)
            for _ in range(number):
                self.busy[n].remove(until)

    def free_by(self, n: int, time: float) -> int:
        return NODE_GPUS[n] - sum(end > time for end in self.busy[n])

    def slots_by(self, gpus: int, time: float) -> int:
        return sum(self.free_by(n, time) // gpus for n in range(len(NODE_GPUS)))

    def check(self, now: float) -> None:
        """The shadow time of a job of every shape: the earliest at which all its tasks fit, and the tasks that fit beside."""
        w, s = self.sim.world, self.sim.state
        self.sim.set_time(now)
        for j, (tasks, gpus) in enumerate(SHAPES):
            times = sorted({now, *(end for ends in self.busy for end in ends if end > now)})
            shadow = next(time for time in times if self.slots_by(gpus, time) >= tasks)
            s.shadow_head[0] = -1  # forget what was found before
            easy.reserve_head(w, self.sim.machine, self.sim.scratch, s, 0, j)
            assert s.shadow_time[0] == shadow
            assert s.shadow_slack[0] == self.slots_by(gpus, shadow) - tasks
            self.check_who_may_outlive(j, shadow)

    def check_who_may_outlive(self, head: int, shadow: float) -> None:
        """A job beyond the shadow time leaves the head its place exactly if the head's tasks still fit without those GPUs."""
        w, s = self.sim.world, self.sim.state
        tasks, gpus = SHAPES[head]
        for other, (_, its_gpus) in enumerate(SHAPES):
            for n in range(len(NODE_GPUS)):
                if NODE_GPUS[n] - len(self.busy[n]) < its_gpus:
                    continue
                self.sim.put([(n, 1, 0)])
                free = [self.free_by(k, shadow) - (its_gpus if k == n else 0) for k in range(len(NODE_GPUS))]
                kept = easy.head_keeps_place(w, self.sim.scratch, s, 0, int(w.job_class[head]), int(w.job_class[other]))
                assert kept == (sum(left // gpus for left in free) >= tasks)


bookings = st.tuples(st.booleans(), st.integers(0, len(NODE_GPUS) - 1), st.integers(1, 4), st.sampled_from(TIMES))


@settings(max_examples=60, deadline=None)
@given(st.lists(bookings, max_size=25), st.sampled_from((0.0, 2.0, 9.0)))
def test_free_times_are_those_of_the_model(steps: list[tuple[bool, int, int, float]], now: float) -> None:
    model = FreeTimes()
    assert model.sim.tracks_free_times
    for book, n, number, until in steps:
        (model.book if book else model.unbook)(n, number, until)
        model.check(now)


def test_the_spare_resources_of_a_reservation_by_hand() -> None:
    """Nodes of 2, 4, 4 and 3 GPUs, all busy: 2 until 1.0, 4 until 2.0, 4 until 3.5, 3 until 8.0. Two tasks of 4 GPUs fit at 3.5."""
    model = FreeTimes()
    for n, until in enumerate((1.0, 2.0, 3.5, 8.0)):
        model.book(n, 4, until)
    model.check(0.0)
    s = model.sim.state
    s.shadow_head[0] = -1
    easy.reserve_head(model.sim.world, model.sim.machine, model.sim.scratch, s, 0, SHAPES.index((2, 4)))
    assert (s.shadow_time[0], s.shadow_slack[0]) == (3.5, 0)


# --- the profile


@dataclass
class Profile:
    """A profile without running jobs, and the model: (begin, end, node, GPUs) of what was taken out of it."""

    sim: Simulation = field(default_factory=lambda: simulation("fcfs+conservative"))
    holds: list[tuple[float, float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.profile = profile.profile_in(profile.profile_memory(self.sim.world, 2 * 20 + 4))
        self.sim.set_time(0.0)
        profile.begin_profile(self.sim.world, self.sim.machine, self.sim.state, 0, self.profile)

    @property
    def number(self) -> int:
        return int(self.profile.size[profile.NUMBER])

    def free(self, n: int, time: float) -> int:
        """Bit mask of the GPUs of node n that nobody holds at this time."""
        mask = (1 << NODE_GPUS[n]) - 1
        for begin, end, node, gpus in self.holds:
            if node == n and begin <= time < end:
                mask &= ~gpus
        return mask

    def hold(self, first: int, length: float, shape: int, n: int) -> None:
        """Take the lowest GPUs of node n that are free for as long out of the profile, from its k-th moment on."""
        start = first % self.number
        begin = float(self.profile.times[start])
        until = begin + length
        mask = (1 << NODE_GPUS[n]) - 1
        for time in [begin, *(t for t, _, _, _ in self.holds if begin < t < until)]:
            mask &= self.free(n, time)
        bits = [g for g in range(NODE_GPUS[n]) if mask >> g & 1][: SHAPES[shape][1]]
        if len(bits) < SHAPES[shape][1]:
            return
        gpus = sum(1 << g for g in bits)
        self.sim.put([(n, 1, gpus)])
        c = int(self.sim.world.job_class[shape])
        profile.hold(self.sim.world, self.sim.state, c, self.profile, start, until)
        self.holds.append((begin, until, n, gpus))

    def check(self) -> None:
        moments = [float(time) for time in self.profile.times[: self.number]]
        assert moments == sorted(set(moments))
        assert set(moments) >= {time for begin, end, _, _ in self.holds for time in (begin, end)}
        for k, time in enumerate(moments):
            free = [self.free(n, time) for n in range(len(NODE_GPUS))]
            row = int(self.profile.row[k])
            masks = self.profile.mask.reshape(-1, len(NODE_GPUS))
            assert masks[row].tolist() == free
            assert self.profile.left[k] == 1000 * sum(mask.bit_count() for mask in free)
            for shape, (tasks, gpus) in enumerate(SHAPES):
                room = profile.room_at(self.sim.world, int(self.sim.world.job_class[shape]), self.profile, row, time)
                assert min(int(room), tasks) == min(sum(mask.bit_count() // gpus for mask in free), tasks)


holds = st.tuples(
    st.integers(0, 50), st.sampled_from((0.5, 1.0, 1.0, 4.0)), st.integers(0, len(SHAPES) - 1), st.integers(0, len(NODE_GPUS) - 1)
)


@settings(max_examples=80, deadline=None)
@given(st.lists(holds, max_size=20))
def test_the_profile_is_that_of_the_model(steps: list[tuple[int, float, int, int]]) -> None:
    profile = Profile()
    profile.check()
    for step in steps:
        profile.hold(*step)
        profile.check()
