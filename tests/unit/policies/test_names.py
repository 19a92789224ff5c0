from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from queuewise.cluster.cluster_loader import load_cluster
from queuewise.errors import InputError
from queuewise.policies import Policy, make_decider, parse_policy, policy_names, simulate
from queuewise.sim.core.state import NO_LIMIT
from queuewise.workload.jobs import Workload
from strategies import CONFIGS

QUICK = CONFIGS / "quick_loops.txt"
WISE = Policy("aged", "easy", NO_LIMIT, "sjf", "pack", 0.0, "predicted", "predicted", 259_200.0)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("fcfs", Policy("fcfs", "none", NO_LIMIT, "", "pack")),
        ("sjf+easy", Policy("sjf", "easy", NO_LIMIT, "", "pack")),
        ("fcfs+easy:sjf", Policy("fcfs", "easy", NO_LIMIT, "sjf", "pack")),
        ("wfp3+conservative/8:f1@spread", Policy("wfp3", "conservative", 8, "f1", "spread")),
        ("saf@pack:0", Policy("saf", "none", NO_LIMIT, "", "pack:0")),
        ("random", Policy("random", "greedy", NO_LIMIT, "", "pack")),
        ("random+none@tier:balance", Policy("random", "none", NO_LIMIT, "", "tier:balance")),
        ("saf+easy~3d", Policy("saf", "easy", max_wait_s=259_200.0)),
        ("saf~1.5h@first", Policy("saf", placement="first", max_wait_s=5_400.0)),
        ("tiresias:60~90s", Policy("tiresias", level=60.0, max_wait_s=90.0)),
        (
            "saf:predicted+easy:sjf:predicted:recent~3d",
            Policy("saf", "easy", NO_LIMIT, "sjf", "pack", 0.0, "predicted", "predicted:recent", 259_200.0),
        ),
        ("wise", WISE),
        ("wise~5d@spread", replace(WISE, max_wait_s=432_000.0, placement="spread")),
        ("wise+conservative", Policy("aged", "conservative", estimates="predicted")),
        ("wise:requested+easy~1h", Policy("aged", "easy", estimates="requested", max_wait_s=3_600.0)),
        ("fcfs+easy:wise", Policy("fcfs", "easy", backfill_order="aged", backfill_estimates="predicted")),
        ("model:runs/a", Policy("model:runs/a", "", placement="")),
        ("model:~/runs/a~2h", Policy("model:~/runs/a", "", placement="", max_wait_s=7_200.0)),
        ("model:runs/a@spread", Policy("model:runs/a", "", placement="spread")),
        ("model:runs/a.safetensors+easy/8~3d@pack:1", Policy("model:runs/a.safetensors", "easy", 8, "", "pack:1", max_wait_s=259_200.0)),
        ("model:~/a+conservative", Policy("model:~/a", "conservative", placement="")),
        ("multifactor+slurm~3d@first", Policy("multifactor", "slurm", placement="first", max_wait_s=259_200.0)),
        (f"saf:oracle+slurm:{QUICK}", Policy("saf", "slurm", estimates="oracle", slurm_config=str(QUICK))),
        ("fcfs+easy:sjf:noisy:0.5", Policy("fcfs", "easy", backfill_order="sjf", backfill_estimates="noisy:0.5")),
    ],
)
def test_names_are_taken_apart(name: str, policy: Policy) -> None:
    assert parse_policy(name) == policy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fcsf", "did you mean 'fcfs'"),
        ("gitins", "did you mean 'gittins'"),
        ("srft", "known: .*, srtf,"),
        ("defrg", "did you mean 'defrag'"),
        ("srtf+easy", "srtf leaves nothing to backfill"),
        ("defrag+easy", "defrag leaves nothing to backfill"),
        ("sjf+eesy", "did you mean 'easy'"),
        ("sjf+easy:fsfc", "unknown order"),
        ("sjf@sprea", "did you mean 'spread'"),
        ("sjf@pack:x", "no option of pack"),
        ("sjf@tier:even", "only tier takes an option, balance"),
        ("sjf@first:2", "no option of first"),
        ("sjf+easy/0", "no positive number"),
        ("sjf+slurm/8", "'slurm/8' is not slurm or slurm:FILE"),
        ("sjf+slurm:", "has nothing after 'slurm:'"),
        ("sjf+slurm:absent.txt", "absent.txt: cannot be read: No such file"),
        ("model:runs/a+slurm", "'slurm' is no backfill of a model"),
        ("sjf+", "unknown backfill"),
        ("fcfs+easy:", "has nothing after 'easy:'"),
        ("fcfs:+easy", "has nothing after 'fcfs:'"),
        ("fcfs+easy:sjf:", "has nothing after 'easy:sjf:'"),
        ("las:~2h", "has nothing after 'las:'"),
        ("defrag:", "has nothing after 'defrag:'"),
        ("sjf@tier:", "has nothing after 'tier:'"),
        (" fcfs", "has blanks around it"),
        ("fcfs ", "has blanks around it"),
        (" model:runs/a", "has blanks around it"),
        ("fcfs+none:sjf", "none backfills no job, so it has no depth or order"),
        ("fcfs+none/3", "none backfills no job, so it has no depth or order"),
        ("model:a+none/3", "none backfills no job, so it has no depth or order"),
        ("fcfs+easy/99999999999999999999", "of at most nine digits"),
        ("fcfs+easy/²", "no positive number"),
        ("fcfs@pack:99999999999999999999", "of at most nine digits"),
        ("fcfs@pack:³", "no option of pack"),
        ("sjf~1_0h", "'1_0h' is not a time"),
        ("sjf~１h", "'１h' is not a time"),
        ("sjf~ 1h", "' 1h' is not a time"),
        ("sjf~1e3s", "'1e3s' is not a time"),
        ("sjf:noisy:1e-1+easy", "needs a number"),
        ("sjf~1e999h", "'1e999h' is not a time"),
        ("sjf~1e308d", "'1e308d' is not a time"),
        ("las:x", "write las:60 for levels from 60 seconds on"),
        ("las2d:x", "write las2d:60 for levels from 60 GPU-seconds on"),
        ("las:1_0", "'1_0' is no option of las"),
        ("srtf:3", "srtf takes no option"),
        ("sjf:noisy:1_0+easy", "needs a number"),
        ("sjf@", "nothing after @"),
        ("sjf~", "'' is not a time"),
        ("sjf~3", "'3' is not a time"),
        ("sjf~-1h", "'-1h' is not a time"),
        ("sjf~0s", "'0s' is not a time"),
        ("sjf~1h~2h", "two bounds"),
        ("sjf:predict+easy", "did you mean 'predicted'"),
        ("sjf:noisy+easy", "needs a number"),
        ("fcfs+easy:sjf:oracle:3", "takes no argument"),
        ("", "names no order"),
        ("model:", "names no run.*has no .*, but for a leading ~/"),
        ("model:+easy", "names no run"),
        ("model:a+b+easy", "'b.easy' is no backfill of a model.*its path has no"),
        ("model:a+", "'' is no backfill of a model"),
        ("model:a+defrag", "'defrag' is no backfill of a model"),
        ("model:a+easy:sjf", "'easy:sjf' is no backfill of a model"),
        ("model:a+easy/0", "no positive number"),
        ("model:runs~/a", "has a ~ in it.*but for a leading ~/"),
        ("model:runs~a", "'a' is not a time.*its path has no"),
        ("model:a@b", "unknown placement.*its path has no"),
        ("wise:oracle", "with other estimates it is an order only.*aged:oracle.easy:sjf:oracle~3d"),
    ],
)
def test_bad_names_say_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_policy(name)


@pytest.mark.parametrize("policy", [None, 3, ["fcfs"], b"fcfs"])
def test_what_is_no_name_is_refused(policy: Any) -> None:
    for refused in (parse_policy, make_decider):
        with pytest.raises(InputError, match="is not a name"):
            refused(policy)
    with pytest.raises(InputError, match="neither a name nor an object that decides"):
        simulate(one_job(), load_cluster("flat:1"), policy)


def test_a_class_in_place_of_an_object_is_refused() -> None:
    class Lazy:
        def decide(self, view: object) -> list[object]:
            return []

    with pytest.raises(InputError, match="neither a name nor an object that decides"):
        simulate(one_job(), load_cluster("flat:1"), Lazy)  # type: ignore[arg-type]


def test_an_unknown_policy_is_told_all_there_are() -> None:
    with pytest.raises(InputError) as caught:
        parse_policy("xyz")
    known = caught.value.hint.partition("known: ")[2].split(", ")
    assert known == sorted([*policy_names(), "defrag"])
    assert all(parse_policy(name) for name in known)


def one_job() -> Workload:
    return Workload(submit=np.zeros(1), runtime=np.ones(1), num_tasks=np.ones(1, np.int32), cpu_milli=np.full(1, 1000, np.int32))


def test_unknown_dispatch_is_refused() -> None:
    with pytest.raises(InputError, match="unknown dispatch 'comit'"):
        simulate(one_job(), load_cluster("flat:1"), "fcfs", dispatch="comit")


@pytest.mark.parametrize("estimates", [np.array([np.nan]), np.array([-1.0]), np.array([1.0, 2.0])])
def test_given_estimates_must_be_one_number_a_job(estimates: np.ndarray) -> None:
    with pytest.raises(InputError, match="one finite, non-negative number per job"):
        simulate(one_job(), load_cluster("flat:1"), "fcfs", estimates=estimates)


@pytest.mark.parametrize("max_wait", [3, 3.0, "3", "1_0h", ""])
def test_a_bound_must_be_a_time(max_wait: Any) -> None:
    with pytest.raises(InputError, match="is not a time"):
        simulate(one_job(), load_cluster("flat:1"), "fcfs", max_wait=max_wait)


def test_a_depth_beyond_all_jobs_needs_no_memory_for_them() -> None:
    assert simulate(one_job(), load_cluster("flat:1"), "hrrn+easy/999999999:f1", estimates="oracle").start.tolist() == [0.0]


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(InputError, match="no jobs"):
        simulate(one_job().take(slice(0, 0)), load_cluster("flat:1"), "fcfs", estimates="oracle")
