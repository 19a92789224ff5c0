"""Policies × windows: every cell once, resumed, refused when conditions or finished jobs differ, joined across runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.measure import bounded_slowdown, measure
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.results import join_runs, mean_metrics, read_cells, write_results
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.statistics import ranking
from queuewise.sim.core.schedule import REJECTED, Schedule
from stand_in import busy_days, line_up, small_cluster

JOBS = busy_days(600)
POLICIES = ["line", "line-60", "line-600"]


def experiment(*, draw: int = 0, num_windows: int = 3, **settings: Any) -> Experiment:
    """Windows of 190 jobs drawn with seed `draw`."""
    return Experiment(
        JOBS, small_cluster(), make_plan("windows", JOBS, num_windows=num_windows, window_jobs=190, seed=draw), ReplaySettings(**settings)
    )


class Counting:
    """The stand-in scheduler, counting its replays."""

    def __init__(self) -> None:
        self.replays: list[tuple[str, int]] = []

    def __call__(self, workload: Any, cluster: Any, policy: str, **settings: Any) -> Schedule:
        self.replays.append((policy, int(workload.job_id[0])))
        return line_up(workload, cluster, policy, **settings)


def finish(run: Path, setup: Experiment, policies: list[str], score: str = "bsld") -> list[Cell]:
    cells = run_experiment(setup, policies, line_up, folder=run)
    write_results(run, cells, judge(cells, parse_score(score)))
    return cells


def test_scores_are_those_of_each_window_replayed_alone() -> None:
    setup = experiment()
    result = judge(run_experiment(setup, POLICIES, line_up), parse_score("bsld"))
    for policy in POLICIES:
        alone = [
            bounded_slowdown(measure(line_up(JOBS.take(slice(w.start, w.stop)), setup.cluster, policy))).mean() for w in setup.plan.windows
        ]
        assert result.per_window[policy] == pytest.approx(alone)
    assert [s.policy for s in result.standings] == POLICIES
    assert result.standings == ranking(result.series)  # three windows settle nothing
    assert result.lower_bound is not None
    assert 1.0 <= result.lower_bound <= result.standings[0].mean


def test_json_has_the_promised_shape() -> None:
    rows = judge(run_experiment(experiment(), POLICIES, line_up), parse_score("wait")).as_json()
    for row in rows:
        assert {"policy", "score", "mean", "ci95", "per_window", "vs_best_baseline"} <= set(row)
        assert row["score"] == "wait"
        assert row["mean"] == pytest.approx(np.mean(row["per_window"]))
        assert row["ci95"][0] <= row["mean"] <= row["ci95"][1]
        assert row["vs_best_baseline"]["diff"] == pytest.approx(row["mean"] - rows[0]["mean"])
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize("table", ["jobs.parquet", "pieces.parquet"])
@pytest.mark.parametrize("damage", ["removed", "cut", "emptied"])
def test_a_cell_that_lost_a_table_is_computed_again(table: str, damage: str, tmp_path: Path) -> None:
    setup = experiment()
    finish(tmp_path, setup, POLICIES)
    home = tmp_path / "line-60" / "w001"
    before = pl.read_parquet(home / table)
    if damage == "removed":
        (home / table).unlink()
    else:
        (home / table).write_bytes(b"" if damage == "emptied" else (home / table).read_bytes()[:-100])
    counting = Counting()
    run_experiment(setup, POLICIES, counting, folder=tmp_path)
    assert len(counting.replays) == 1
    assert pl.read_parquet(home / table).equals(before)


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_run_that_lost_its_cluster_gets_it_back(damage: str, tmp_path: Path) -> None:
    setup = experiment()
    run_experiment(setup, POLICIES[:2], line_up, folder=tmp_path)
    cluster = tmp_path / "cluster.json"
    before = cluster.read_bytes()
    if damage == "removed":
        cluster.unlink()
    else:
        cluster.write_bytes(before[:-10])
    run_experiment(setup, POLICIES[:2], line_up, folder=tmp_path)
    assert cluster.read_bytes() == before


def test_one_window_gives_no_interval() -> None:
    (row, _) = judge(run_experiment(experiment(num_windows=1), POLICIES[:2], line_up), parse_score("bsld")).as_json()
    assert row["ci95"] == [None, None]


def test_cells_are_kept_and_not_redone(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    before = run_experiment(experiment(), POLICIES[:2], first, folder=tmp_path / "r")
    after = run_experiment(experiment(), POLICIES, second, folder=tmp_path / "r")
    assert len(first.replays) == 6
    assert {policy for policy, _ in second.replays} == {"line-600"}
    assert len(second.replays) == 3
    assert after[:6] == before


def test_an_interrupted_run_keeps_what_is_done_and_resumes(tmp_path: Path) -> None:
    def fails_once(workload: Any, cluster: Any, policy: str, **settings: Any) -> Schedule:
        if policy == "line-60":
            raise KeyboardInterrupt
        return line_up(workload, cluster, policy, **settings)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(), POLICIES, fails_once, folder=tmp_path, threads=1)
    again = Counting()
    run_experiment(experiment(), POLICIES, again, folder=tmp_path)
    assert {policy for policy, _ in again.replays} == {"line-60", "line-600"}


def test_a_folder_of_other_conditions_is_refused(tmp_path: Path) -> None:
    run_experiment(experiment(), ["line"], line_up, folder=tmp_path)
    with pytest.raises(InputError, match="other settings: windows, seed differ"):
        run_experiment(experiment(draw=9, seed=9), ["line"], line_up, folder=tmp_path)
    other_cluster = dataclasses.replace(experiment(), cluster=small_cluster(3))
    with pytest.raises(InputError, match="cluster, cluster_digest differ"):
        run_experiment(other_cluster, ["line"], line_up, folder=tmp_path)


def test_unequal_job_sets_are_refused() -> None:
    def fails_for_one(workload: Any, cluster: Any, policy: str, **settings: Any) -> Schedule:
        schedule = line_up(workload, cluster, policy, **settings)
        if policy == "line-60":
            schedule.status[7] = REJECTED
        return schedule

    cells = run_experiment(experiment(), POLICIES, fails_for_one)
    with pytest.raises(InputError, match=r"did not finish the same jobs \(line 190 of 190 and line-60 189 of 190\)"):
        judge(cells, parse_score("bsld"))


def test_missing_windows_are_refused() -> None:
    cells = run_experiment(experiment(), POLICIES, line_up)
    with pytest.raises(InputError, match="not measured on the same windows"):
        judge(cells[:-1], parse_score("bsld"))


def test_results_on_disk(tmp_path: Path) -> None:
    cells = finish(tmp_path, experiment(), POLICIES)
    assert sorted(read_cells(tmp_path), key=lambda c: (c.policy, c.window)) == sorted(cells, key=lambda c: (c.policy, c.window))
    assert [row["policy"] for row in json.loads((tmp_path / "summary.json").read_text())] == POLICIES
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 9
    header, *rows = (tmp_path / "summary.csv").read_text().splitlines()
    assert header.startswith("policy,jobs,wait_s.mean,")
    assert len(rows) == 3
    mean = mean_metrics(cells)[0]["wait_s.mean"]
    assert mean == pytest.approx(np.mean([c.metrics["wait_s"]["mean"] for c in cells if c.policy == "line"]))


def test_runs_on_the_same_windows_are_joined(tmp_path: Path) -> None:
    finish(tmp_path / "a", experiment(), ["line", "line-60"])
    finish(tmp_path / "b", experiment(dispatch="commit"), ["line"])
    cells = join_runs([tmp_path / "a", tmp_path / "b"])
    assert {cell.policy for cell in cells} == {"line [dispatch=reorder]", "line-60 [dispatch=reorder]", "line [dispatch=commit]"}
    finish(tmp_path / "c", experiment(), ["line"])
    assert {cell.policy for cell in join_runs([tmp_path / "a", tmp_path / "c"])} == {"line", "line-60", "line (c)"}


def test_runs_on_other_windows_are_not_compared(tmp_path: Path) -> None:
    finish(tmp_path / "a", experiment(), ["line"])
    finish(tmp_path / "b", experiment(draw=1), ["line"])
    with pytest.raises(InputError, match=r"b: was not measured on the same windows as .*a: windows differ"):
        join_runs([tmp_path / "a", tmp_path / "b"])
    finish(tmp_path / "c", experiment(warmup=0.1), ["line"])
    with pytest.raises(InputError, match="warmup differ"):
        join_runs([tmp_path / "a", tmp_path / "c"])


def test_packing_cells_carry_their_curve() -> None:
    setup = Experiment(JOBS, small_cluster(), make_plan("packing", JOBS, num_windows=2), ReplaySettings())
    cells = run_experiment(setup, ["line"], line_up)
    assert all(cell.packing is not None and cell.scores["packed"] is not None for cell in cells)
    result = judge(cells, parse_score("packed"))
    assert 0.5 < result.standings[0].mean <= 1.0
