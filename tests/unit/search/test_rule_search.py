from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.evaluation.protocol import block_jobs
from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.search import rule_search
from queuewise.search.evolution import SearchSettings, cost_of
from queuewise.search.rule_search import CHOOSING, RuleSearch
from queuewise.workload.models import generate

LOG, MACHINE = generate("lublin", 900, 3), load_cluster("flat:256")
SETTINGS = SearchSettings({"bsld": 1.0, "wait": 1.0}, population=4, stretch_jobs=300)
REFERENCES = ["sjf+easy"]


def rule_search_in(folder: Path) -> RuleSearch:
    replay = ReplaySettings(estimates="oracle")
    return RuleSearch(LOG, MACHINE, block_jobs(LOG, replay.split), replay, SETTINGS, folder, lambda: 0.0, lambda text: None)


@pytest.fixture
def _short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_search, "RUN", 2)
    monkeypatch.setattr(rule_search, "MOST_RUNS", 3)


@pytest.mark.usefixtures("_short_runs")
def test_runs_follow_one_another_and_an_interrupted_search_continues(tmp_path: Path) -> None:
    first = rule_search_in(tmp_path)
    found = first.run(REFERENCES, 1.0)
    journals = sorted(path.name for path in tmp_path.iterdir())
    assert journals == ["search-2.jsonl", "search-3.jsonl", "search.jsonl"]
    assert first.generations == 6
    before = {name: (tmp_path / name).read_text() for name in journals}
    assert len({text.partition("\n")[2] for text in before.values()}) == 3  # each run draws other stretches
    (tmp_path / "search-3.jsonl").unlink()  # ended during the second run
    assert rule_search_in(tmp_path).run(REFERENCES, 1.0) == found
    assert {name: (tmp_path / name).read_text() for name in journals} == before


@pytest.mark.usefixtures("_short_runs")
def test_without_time_there_is_one_generation(tmp_path: Path) -> None:
    searching = rule_search_in(tmp_path)
    searching.run(REFERENCES, -1.0)
    assert searching.generations == 1


def test_the_choice_is_by_training_and_validation_days_alike(tmp_path: Path) -> None:
    searching = rule_search_in(tmp_path)
    rules = [FoundRule((x, y, *[0.0] * (len(NUMBERS) - 2)), estimates="oracle") for x in (0.0, 0.5, 1.0) for y in (0.0, 1.0)]
    costs = {}
    for block in ("train", "val"):
        stretches, rng = searching.stretches(block), np.random.default_rng((SETTINGS.seed, 2))
        drawn = [stretches.draw(rng, SETTINGS.stretch_jobs) for _ in range(CHOOSING)]
        costs[block] = np.mean([cost_of(stretches.replay([*rules, *REFERENCES], one), SETTINGS.objective, 1) for one in drawn], axis=0)
    chosen = searching._best_of(rules, REFERENCES)
    assert chosen == rules[int(np.argmin(costs["train"] + costs["val"]))]
    assert costs["train"][rules.index(chosen)] + costs["val"][rules.index(chosen)] < costs["train"][0] + costs["val"][0]
