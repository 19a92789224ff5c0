"""What is read from the output of `scontrol show config`."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from queuewise.envs.env_setup import build_setup
from queuewise.errors import InputError
from queuewise.evaluation.identity import RULE, digest_policy
from queuewise.policies.slurm_config import slurm_loops
from queuewise.sim.backfill import SlurmLoops

SHOWN = """Configuration data as of 2026-03-04T11:05:12
AccountingStorageType   = accounting_storage/slurmdbd
SchedulerParameters     = {}
SchedulerTimeSlice      = 30 sec
SchedulerType           = sched/backfill
"""


def written(folder: Path, parameters: str) -> str:
    path = folder / "config.txt"
    path.write_text(SHOWN.format(parameters), encoding="utf-8")
    return str(path)


def numbers(loops: SlurmLoops) -> tuple[float, ...]:
    return tuple(loops.tolist())


def test_without_a_file_and_without_parameters_everything_is_as_slurm_has_it(tmp_path: Path) -> None:
    defaults = (30.0, 500.0, 86_400.0, 60.0, 100.0, 60.0)
    assert numbers(slurm_loops("")) == defaults
    assert numbers(slurm_loops(written(tmp_path, "(null)"))) == defaults


def test_parameters_are_read_in_their_units_and_others_have_their_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, "batch_sched_delay=3,bf_interval=60,bf_continue,bf_window=4320,bf_max_job_test=1000,default_queue_depth=50")
    assert numbers(slurm_loops(path)) == (60.0, 1000.0, 3 * 86_400.0, 60.0, 50.0, 60.0)


def test_a_line_of_slurm_conf_will_do(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\n schedulerparameters=bf_resolution=300,sched_interval=-1\n", encoding="utf-8")
    assert numbers(slurm_loops(str(tmp_path / "slurm.conf"))) == (30.0, 500.0, 86_400.0, 300.0, 100.0, np.inf)


def test_what_matters_and_is_not_modelled_is_named_once(tmp_path: Path) -> None:
    path = written(tmp_path, "bf_max_job_user=20,bf_max_job_part=0,defer,salloc_wait_nodes")
    with pytest.warns(UserWarning, match=r"config.txt: not modelled by the backfill rule slurm: bf_max_job_user=20, defer$"):
        slurm_loops(path)
    with warnings.catch_warnings(action="error"):
        slurm_loops(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHOWN.format("bf_interval=soon"), "bf_interval=soon is not a number above 0"),
        (SHOWN.format("bf_max_job_test=0"), "bf_max_job_test=0 is not a number above 0"),
        (SHOWN.format("bf_window=-1"), "bf_window=-1 is not a number above 0"),
        (SHOWN.format("(null)").replace("sched/backfill", "sched/builtin"), "SchedulerType is sched/builtin, which does not backfill"),
        ("PartitionName=gpu\n", "has neither SchedulerType nor SchedulerParameters"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        slurm_loops(str(tmp_path / "bad.txt"))
    assert caught.value.where == str(tmp_path / "bad.txt")
    assert caught.value.hint


def test_a_file_that_has_changed_is_read_again_and_has_another_digest(tmp_path: Path) -> None:
    policy = f"fcfs+slurm:{written(tmp_path, 'bf_interval=60')}"
    before = digest_policy(policy)
    assert before != RULE
    assert digest_policy("fcfs+slurm") == RULE
    written(tmp_path, "bf_interval=600,bf_window=60")
    assert digest_policy(policy) != before
    assert slurm_loops(str(tmp_path / "config.txt")).backfill_interval == 600.0


def test_environments_refuse_it() -> None:
    with pytest.raises(InputError, match="environments have no loops"):
        build_setup(dispatch="commit", backfill="slurm")
