"""The energy of nodes that sleep, worked out by hand on one node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.conditions import Conditions, Power
from queuewise.cluster.spec import NodeGroup, build
from queuewise.evaluation.energy import J_PER_KWH
from queuewise.evaluation.measure import Measurement, measure
from queuewise.evaluation.metrics import METRICS
from queuewise.evaluation.replay_files import read_schedule, write_cluster, write_replay
from queuewise.evaluation.timeline import mean_watts
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

POWER = Power(sleep_after_s=10, wake_s=5, sleep_watts=7, wake_watts=150, price_by_hour=(2.0, *[1.0] * 23))
# Idle 100 W, a core 10 W. Job 0 runs from 0 to 4 and the node sleeps from 14; job 1 wakes it at 20, begins at 25 and ends at 28.
EDGES = np.array([0.0, 4, 14, 20, 25, 28])
WATTS = [110.0, 100, 7, 150, 110]
JOULES = 4 * 110 + 10 * 100 + 6 * 7 + 5 * 150 + 3 * 110


@pytest.fixture
def counted() -> Measurement:
    cluster = build("one", [NodeGroup(1, cpus=4, idle_watts=100, core_watts=10)])
    workload = Workload(
        np.array([0.0, 20.0]), np.array([4.0, 3.0]), np.ones(2, np.int32), np.zeros(2, np.int32), np.full(2, 1000, np.int32)
    )
    return measure(simulate(workload, cluster, "fcfs", estimates="oracle", conditions=Conditions(power=POWER)))


def test_watts_of_each_spell(counted: Measurement) -> None:
    assert counted.schedule.start.tolist() == [0, 25]
    np.testing.assert_allclose(mean_watts(counted, EDGES), WATTS)


def test_metrics(counted: Measurement) -> None:
    assert METRICS["energy_kwh"].of(counted) == pytest.approx(JOULES / J_PER_KWH)
    assert METRICS["energy_cost"].of(counted) == pytest.approx(2 * JOULES / J_PER_KWH)
    assert METRICS["asleep_share"].of(counted) == pytest.approx(6 / 28)
    assert METRICS["wakes"].of(counted) == 1
    assert METRICS["peak_watts"].of(counted) == 150


def test_waking_draws_as_idle_unless_told(counted: Measurement) -> None:
    plain = Conditions(power=POWER.model_copy(update={"wake_watts": None, "price_by_hour": (), "price_per_kwh": 3.0}))
    again = measure(simulate(counted.schedule.workload, counted.schedule.cluster, "fcfs", estimates="oracle", conditions=plain))
    assert METRICS["energy_kwh"].of(again) == pytest.approx((JOULES - 5 * 50) / J_PER_KWH)
    assert METRICS["energy_cost"].of(again) == pytest.approx(3 * (JOULES - 5 * 50) / J_PER_KWH)


def test_a_run_folder_keeps_it(counted: Measurement, tmp_path: Path) -> None:
    write_cluster(tmp_path, counted.schedule.cluster)
    write_replay(tmp_path / "fcfs", counted.schedule)
    kept = measure(read_schedule(tmp_path, tmp_path / "fcfs"))
    assert METRICS["energy_cost"].of(kept) == METRICS["energy_cost"].of(counted)
    assert METRICS["asleep_share"].of(kept) == METRICS["asleep_share"].of(counted)
