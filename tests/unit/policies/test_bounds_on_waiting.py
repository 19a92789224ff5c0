"""Bounds on waiting: by hand, under classes, and what they are for: nobody waits much longer than the bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise import load_cluster, load_workload, simulate
from queuewise.cluster.conditions import Conditions, Preemption
from queuewise.errors import InputError
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

SMALLEST = """
from queuewise.policies.interface import Preempt, Start

class Smallest:
    def decide(self, view):
        for job in sorted(view.queue, key=lambda job: (job.width, job.index)):
            if view.fits(job):
                yield Start(job)

class Reckless:
    def decide(self, view):
        for job in view.queue:
            if job.width < 4:
                yield Start(job)

class Stopper:
    def decide(self, view):
        for run in view.running:
            if run.start < view.now:
                yield Preempt(run.job)
        for job in view.queue:
            if view.fits(job):
                yield Start(job)
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(SMALLEST, encoding="utf-8")
    return str(path)


def stream() -> Workload:
    """A job of 4 cores behind two of 2, and then one of 2 every 6 s, so that under `smallest+greedy` 2 cores are always taken."""
    submit = [0.0, 0.0, 1.0, *(2.0 + 6.0 * i for i in range(20))]
    cores = [2, 2, 4] + [2] * 20
    return Workload(
        submit=np.array(submit),
        runtime=np.full(len(submit), 10.0),
        num_tasks=np.ones(len(submit), np.int32),
        cpu_milli=np.array(cores, np.int32) * 1000,
    )


@pytest.mark.parametrize("rule", ["none", "greedy", "easy", "easy-strict", "conservative", "defrag"])
def test_a_wide_job_in_a_stream_of_narrow_ones(rule: str) -> None:
    """It is overdue at 26. The jobs that run then end at 30, and no other may start beside its reservation."""
    schedule = simulate(stream(), load_cluster("flat:4"), f"smallest+{rule}~25s", estimates="oracle")
    assert schedule.start[2] == 30.0
    assert schedule.start[7] == 40.0  # submitted at 26, and narrow


def test_without_a_bound_the_wide_job_waits_for_the_end_of_the_stream() -> None:
    assert simulate(stream(), load_cluster("flat:4"), "smallest+greedy", estimates="oracle").start[2] > 100.0


def test_the_option_bounds_policies_that_have_no_bound() -> None:
    cluster = load_cluster("flat:4")
    named = simulate(stream(), cluster, "smallest+greedy~25s", estimates="oracle")
    np.testing.assert_array_equal(simulate(stream(), cluster, "smallest+greedy", estimates="oracle", max_wait="25s").start, named.start)
    other = simulate(stream(), cluster, "smallest+greedy~25s", estimates="oracle", max_wait="1h")
    np.testing.assert_array_equal(other.start, named.start)


def test_a_class_is_bounded_like_the_policy_it_writes_out(own: str) -> None:
    workload, cluster = generate("bench", 300, seed=3, gpus=32, load=1.3), load_cluster("4x8:V100-16")
    for bound in ("1h", "6h"):
        written = simulate(workload, cluster, f"{own}:Smallest~{bound}")
        named = simulate(workload, cluster, f"smallest+greedy~{bound}")
        np.testing.assert_array_equal(written.start, named.start)
    unbounded = simulate(workload, cluster, f"{own}:Smallest")
    assert (unbounded.start - workload.submit).max() > (named.start - workload.submit).max()


def test_a_start_that_would_delay_an_overdue_job_is_an_error(own: str) -> None:
    workload = Workload(
        submit=np.array([0.0, 1.0, 3.0]),
        runtime=np.array([10.0, 10.0, 20.0]),
        num_tasks=np.ones(3, np.int32),
        cpu_milli=np.array([2000, 4000, 1000], np.int32),
    )
    with pytest.raises(InputError, match="starts job 2, which does not fit or would delay the overdue job 1"):
        simulate(workload, load_cluster("flat:4"), f"{own}:Reckless~2s", estimates="oracle")
    assert simulate(workload, load_cluster("flat:4"), "smallest+greedy~2s", estimates="oracle").start.tolist() == [0.0, 10.0, 20.0]


def test_an_overdue_job_is_not_stopped_by_a_class(own: str) -> None:
    with pytest.raises(InputError, match="preempts job 0, which is overdue"):
        simulate(stream().take(slice(0, 4)), load_cluster("flat:4"), f"{own}:Stopper~1s", estimates="oracle",
                 conditions=Conditions(preemption=Preemption()))  # fmt: skip


def test_waits_on_a_log_stay_near_the_bound(traces: Path) -> None:
    loaded = load_workload(traces / "swf" / "KTH-SP2-1996-2.swf.gz")
    workload, cluster = loaded.workload, load_cluster("flat:100")
    free = simulate(workload, cluster, "saf+easy")
    bounded = simulate(workload, cluster, "saf+easy~3d")
    assert (free.start - workload.submit).max() > 20 * 86400.0
    assert (bounded.start - workload.submit).max() < 6 * 86400.0
