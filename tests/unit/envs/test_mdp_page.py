"""docs/mdp.md and the code name the same things."""

from __future__ import annotations

import re
from pathlib import Path

from queuewise.envs.features import GLOBAL, HOST_FIXED, HOST_LIVE, JOB_FIXED, JOB_LIVE, LOOKAHEADS, RUNNING
from queuewise.envs.presets import PRESETS
from queuewise.envs.rewards import DIVISORS, TERMS
from queuewise.envs.task_settings import TaskSettings


def table_names(page: str, heading: str) -> list[str]:
    """Names in the first column of the table whose first heading cell is `heading`."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows += re.findall(r"`([^`]+)`", line.split("|")[1])
    return rows


def test_every_feature_is_on_the_page_and_every_name_on_the_page_is_a_feature(repository: Path) -> None:
    page = (repository / "docs" / "mdp.md").read_text()
    assert sorted(table_names(page, "global")) == sorted(GLOBAL)
    assert sorted(table_names(page, "job")) == sorted([*JOB_FIXED, *JOB_LIVE, "score_<order>"])
    assert sorted(table_names(page, "host")) == sorted([*HOST_FIXED, *HOST_LIVE])
    assert sorted(table_names(page, "running")) == sorted(RUNNING)


def test_every_reward_term_is_on_the_page_and_every_name_on_the_page_is_a_term(repository: Path) -> None:
    assert sorted(table_names((repository / "docs" / "mdp.md").read_text(), "term")) == sorted(TERMS)


def test_every_preset_setting_and_mode_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "mdp.md").read_text()
    assert sorted(table_names(page, "preset")) == sorted(PRESETS)
    said = set(re.findall(r"`([a-z_]+)[`=]", page))
    settings = set(TaskSettings.model_fields) - {"problem", "reward", "estimates", "placement", "dispatch", "lookahead"}
    assert settings <= said, settings - said
    assert set(LOOKAHEADS) | set(DIVISORS) <= said
