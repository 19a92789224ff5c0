"""Environments play the same without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PLAY = """
import json, sys
import numpy as np
from queuewise.envs import QueuewiseVectorEnv

told = {}
for name, arguments in json.loads(sys.argv[1]).items():
    envs = QueuewiseVectorEnv(3, threads=1, episode_jobs=6, window=4, pool=5, **({"cluster": "3x4:V100-16"} | arguments))
    seen, info = envs.reset(seed=1)
    actions = envs.legal_actions(seed=2)
    rows = [[seen.tolist(), actions.tolist()]]
    for _ in range(25):
        seen, rewards, terminated, truncated, info = envs.step(actions)
        actions = envs.legal_actions()
        rows.append([seen.tolist(), rewards.tolist(), (terminated | truncated).tolist(), info["action_mask"].tolist(), actions.tolist()])
    told[name] = rows
print(json.dumps(told))
"""
CASES = {
    "job": {"problem": "job"},
    "cdf": {"problem": "job", "lookahead": "cdf"},
    "host": {"problem": "host"},
    "joint": {"problem": "joint"},
    "stops": {"problem": "job", "stops": 2, "moves": True},
    "head": {"problem": "job", "dispatch": "head", "backfill": "easy:wfp3", "scores": ("aged", "saf"), "max_wait": "1h"},
    "failures": {"problem": "job", "conditions": {"failures": {"mtbf_h": 2.0, "mttr_h": 0.5}}},
    "sleep": {"problem": "joint", "conditions": {"power": {"sleep_after_s": 5.0, "wake_s": 60.0, "cap_watts": 5000.0}}},
    "cores": {"problem": "job", "cluster": "flat:32", "workload": "lublin", "model_args": {"processors": 32}},
}


@pytest.fixture(scope="module")
def played() -> tuple[dict[str, list[object]], dict[str, list[object]]]:
    compiled, plain = (_play(disable_jit) for disable_jit in (False, True))
    return compiled, plain


def _play(disable_jit: bool) -> dict[str, list[object]]:
    environment = os.environ | {"NUMBA_DISABLE_JIT": str(int(disable_jit))}
    done = subprocess.run([sys.executable, "-c", PLAY, json.dumps(CASES)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, list[object]] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("case", CASES)
def test_compiled_and_plain_play_are_one(case: str, played: tuple[dict[str, list[object]], dict[str, list[object]]]) -> None:
    compiled, plain = played
    assert len(compiled[case]) == 26
    assert compiled[case] == plain[case]
