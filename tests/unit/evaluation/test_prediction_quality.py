from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise import load_cluster
from queuewise.cli import main
from queuewise.errors import InputError
from queuewise.evaluation.prediction_quality import BEST, _earlier_jobs, _quality, judge_predictions
from queuewise.workload.history import prediction_quantiles
from queuewise.workload.jobs import Workload

DAY = 86_400.0


def repeated(num: int, seed: int = 0) -> Workload:
    """Users whose runtimes differ by far between users and little within: a good predictor learns them."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 8, num).astype(np.int32)
    runtime = 30.0 * 2.0**user * rng.lognormal(0.0, 0.2, num)
    ones = np.ones(num, np.int32)
    return Workload(
        submit=np.sort(rng.uniform(0, 60 * DAY, num)),
        runtime=runtime,
        recorded_wait=np.zeros(num),
        requested=np.full(num, 2 * DAY),
        num_tasks=ones,
        gpu_milli=ones * 1000,
        cpu_milli=ones * 0,
        mem_mib=ones * 0,
        user=user,
        users=tuple("abcdefgh"),
    )


def test_quality_by_hand() -> None:
    """Distances in powers of two: 0, 1 and 2, of runtimes 4, 8 and 16."""
    found = _quality(np.array([4.0, 8.0, 16.0]), np.array([4.0, 16.0, 64.0]))
    assert found.r2_log == pytest.approx(1 - (0 + 1 + 4) / 2)
    assert found.within_2x == pytest.approx(2 / 3)
    assert found.median_ratio == pytest.approx(2)


def test_equal_runtimes_have_no_variance_to_explain() -> None:
    assert _quality(np.full(30, 100.1), np.full(30, 8.0)).r2_log is None


def test_earlier_jobs_are_counted_by_user() -> None:
    workload = repeated(6)
    workload = workload.replace(user=np.array([0, 1, 0, 0, 1, 2], np.int32))
    assert _earlier_jobs(workload).tolist() == [0, 0, 1, 2, 1, 0]


def test_quantiles_keep_their_promise_on_later_jobs() -> None:
    workload = repeated(3000)
    true_scale = np.asarray(30.0 * 2.0**workload.user, np.float64)
    low, high = prediction_quantiles(workload, true_scale, (0.1, 0.9)).T
    later = slice(1000, None)
    inside = (workload.runtime[later] >= low[later]) & (workload.runtime[later] <= high[later])
    assert inside.mean() == pytest.approx(0.8, abs=0.03)


def test_predictions_of_repeated_jobs_are_good_and_calibrated() -> None:
    with pytest.raises(InputError, match="can run on flat:64"):
        judge_predictions(repeated(100), load_cluster("flat:64"))
    found = judge_predictions(repeated(3000), load_cluster("8x8:V100-16"))
    assert found.days == 21  # as evaluate counts them: from the first counted submission on, and not by the log's clock
    assert found.estimates[BEST].r2_log == pytest.approx(0.96, abs=0.03)
    assert found.estimates["requested"].within_2x == 0
    assert found.coverage_80 == pytest.approx(0.8, abs=0.05)
    assert all(abs(share - level) < 0.06 for level, share in found.calibration)
    assert sum(one.jobs for one in found.by["runtime"].values()) == found.estimates[BEST].jobs
    assert [one.by for one in found.worth] == ["requests", "predictions", "exact runtimes"]


def test_command_prints_tables_json_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "figure.png"
    command = ["predict", "lublin", "--cluster", "flat:256", "--jobs", "800"]
    assert main([*command, "--plot", str(figure)]) == 0
    assert "R² of log runtime" in capsys.readouterr().out
    assert figure.stat().st_size > 10_000
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"r2_log", "within_2x", "coverage_80"} <= found.keys()
    assert 0.6 < found["coverage_80"] < 0.95
