"""Runs that an earlier version wrote (`stored_runs`, stopped after 64 frames): they still play as policies and resume.

If features or files are meant to change, `scripts/remake-stored-runs` makes them again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from queuewise import load_cluster, simulate
from queuewise.agents.model_policies import settings_of
from queuewise.agents.recording import read_rows
from queuewise.cli import main
from queuewise.policies.model_file import read_card
from queuewise.sim.core.schedule import DONE
from queuewise.workload.models import generate

STORED = Path(__file__).parent / "stored_runs"
ALGORITHMS = ("ppo", "d3qn")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_stored_model_plays(algo: str) -> None:
    schedule = simulate(generate("bursty", 20, seed=1, max_gpus=2), load_cluster("2x2:V100-16"), f"model:{STORED / algo}")
    assert (schedule.status == DONE).all()


def test_null_in_an_older_card_means_that_updates_do_not_end_early() -> None:
    card = read_card(STORED / "ppo" / "best.safetensors")
    card["settings"]["ppo"]["target_kl"] = None
    assert settings_of(card, STORED)[0].ppo.target_kl == 0.0


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_stored_run_resumes(algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / algo
    shutil.copytree(STORED / algo, run)
    before = read_rows(run / "seed-0")
    assert main(["train", "--resume", str(run), "--frames", "96", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == 96
    rows = read_rows(run / "seed-0")
    assert rows[: len(before)] == before
    assert [row["frames"] for row in rows[len(before) :]] == [80, 96]
    last = max((run / "seed-0" / "checkpoints").iterdir())
    assert read_card(last)["progress"]["iteration"] == len(rows)
