"""Learners of these tests warm up for a moment only."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuewise.agents.training_envs.WARMUP_STEPS", 64)
