"""Functions that hold jobs back: by hand, their errors, and parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise import load_cluster, simulate
from queuewise.errors import InputError
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS

OWN = """
import math

PARAMS = [4.0]

def patient(job):
    return job.submit

def patient_hold(job, now, params):
    return params[0] if job.index == 1 and now < job.submit + params[0] else 0.0

def never(job):
    return job.submit

def never_hold(job):
    return math.inf

def negative(job):
    return job.submit

def negative_hold(job):
    return -1.0

def wordy(job):
    return job.submit

def wordy_hold(job):
    return "later"

def instant(job):
    return job.submit

def instant_hold(job, params):
    return params[0] if job.index == 1 else 0.0

def spare(job):
    return job.submit

def spare_hold(job, cluster):
    return math.inf if cluster.free_cores - job.width < 3 else 0.0

def plain(job, params):
    return -params[0] * job.submit
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


def jobs(*rows: tuple[float, float, int]) -> Workload:
    """(submission, runtime, cores)."""
    submit, runtime, cores = np.array(rows, np.float64).T
    return Workload(submit=submit, runtime=runtime, num_tasks=np.ones(len(rows), np.int32), cpu_milli=(cores * 1000).astype(np.int32))


@pytest.mark.parametrize("rule", BACKFILLS)
def test_a_held_job_is_passed_over_and_starts_when_its_time_is_over(own: str, rule: str) -> None:
    """Job 1 is held from 1 to 5 and does not block job 2. Nothing else happens at 5: there is a decision nevertheless."""
    workload = jobs((0, 20, 1), (1, 3, 2), (2, 1, 1))
    schedule = simulate(workload, load_cluster("flat:4"), f"{own}:patient+{rule}", estimates="oracle")
    assert schedule.start.tolist() == [0.0, 5.0, 2.0]


@pytest.mark.parametrize("rule", BACKFILLS)
@pytest.mark.parametrize("dispatch", ["reorder", "commit"])
def test_jobs_that_are_all_held_run_one_after_the_other(own: str, rule: str, dispatch: str) -> None:
    workload = jobs((0, 3, 1), (0, 4, 1), (1, 5, 2))
    schedule = simulate(workload, load_cluster("flat:4"), f"{own}:never+{rule}", estimates="oracle", dispatch=dispatch)
    assert schedule.start.tolist() == [0.0, 3.0, 7.0]


@pytest.mark.parametrize("rule", ["none", "greedy", "easy", "easy-strict"])
def test_every_start_counts_for_the_next(own: str, rule: str) -> None:
    """Three cores must stay free of ten. Jobs 0 and 1 take six; job 2, of the same instant, would leave one; job 3 leaves three."""
    workload = jobs((0, 8, 3), (0, 8, 3), (0, 5, 3), (0, 5, 1))
    schedule = simulate(workload, load_cluster("flat:10"), f"{own}:spare+{rule}", estimates="oracle")
    assert schedule.start.tolist() == [0.0, 0.0, 8.0, 0.0]


@pytest.mark.parametrize("seconds", [1e-300, 1e-12, 0.000999])
def test_a_hold_below_a_millisecond_holds_nobody(own: str, seconds: float) -> None:
    """The clock would hardly advance: job 1, asked at 1 and held again and again until job 0 ends, would be asked 20e12 times."""
    workload = jobs((0, 20, 1), (1, 3, 2))
    schedule = simulate(workload, load_cluster("flat:4"), f"{own}:instant", estimates="oracle", params=[seconds])
    assert schedule.start.tolist() == [0.0, 1.0]
    assert schedule.decisions <= 4


def test_a_hold_of_a_millisecond_holds(own: str) -> None:
    workload = jobs((0, 1, 1), (0.5, 3, 2))
    schedule = simulate(workload, load_cluster("flat:4"), f"{own}:instant", estimates="oracle", params=[0.001])
    assert schedule.start.tolist() == [0.0, 1.0]  # when nothing runs any more
    assert schedule.decisions > 400


def test_an_overdue_job_is_not_held(own: str) -> None:
    schedule = simulate(jobs((0, 50, 1), (1, 3, 1)), load_cluster("flat:4"), f"{own}:never+easy~10s", estimates="oracle")
    assert schedule.start.tolist() == [0.0, 11.0]


def test_parameters_of_the_call_replace_those_of_the_file(own: str) -> None:
    workload, cluster = jobs((0, 20, 1), (1, 3, 2), (2, 1, 1)), load_cluster("flat:4")
    assert simulate(workload, cluster, f"{own}:patient", estimates="oracle", params=[9.0]).start.tolist() == [0.0, 10.0, 2.0]
    queue = jobs((0, 10, 4), (1, 1, 4), (2, 1, 4))
    assert simulate(queue, cluster, f"{own}:plain", estimates="oracle").start.tolist() == [0.0, 11.0, 10.0]
    assert simulate(queue, cluster, f"{own}:plain", estimates="oracle", params=[-1.0]).start.tolist() == [0.0, 10.0, 11.0]


@pytest.mark.parametrize(
    ("policy", "params", "message"),
    [
        ("{}:negative", None, "negative_hold returned NaN or a negative time for job 0"),
        ("{}:wordy", None, "wordy_hold returns .*, not a number .*return 0 if the job may start"),
        ("{}:patient", [1.0, 2.0], "patient takes 1 finite parameters, not"),
        ("{}:patient", [np.nan], "patient takes 1 finite parameters, not"),
        ("fcfs", [1.0], "none of the policy's functions takes params"),
        ("fcfs+easy:{}:never", None, "holds jobs, but it is only the backfill order"),
    ],
)
def test_mistakes_are_explained(own: str, policy: str, params: list[float] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(jobs((0, 1, 1)), load_cluster("flat:4"), policy.format(own), params=params)


@pytest.mark.parametrize("line", ["PARAMS = [math.inf]", "PARAMS = 'abc'", "PARAMS = [[1.0]]", "PARAMS = [0.0] * 257"])
def test_unfit_params_of_a_file_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(f"import math\n{line}\ndef f(job, params):\n    return params[0]\n", encoding="utf-8")
    with pytest.raises(InputError, match="PARAMS is"):
        simulate(jobs((0, 1, 1)), load_cluster("flat:4"), f"{path}:f")


def test_params_without_PARAMS_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f(job, params):\n    return params[0]\n", encoding="utf-8")
    with pytest.raises(InputError, match="takes params, but the file does not set them"):
        simulate(jobs((0, 1, 1)), load_cluster("flat:4"), f"{path}:f")
