"""RLlib's PPO trains on the job problem, in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_rllib_ppo_trains(repository: Path, tmp_path: Path) -> None:
    own = {**os.environ, "PYTHON": sys.executable}
    home = Path(os.environ.get("QUEUEWISE_RLLIB_VENV") or repository / ".venv-rllib")
    made = subprocess.run([repository / "scripts" / "rllib", home], check=False, capture_output=True, text=True, env=own)
    if made.returncode != 0:
        pytest.skip(f"RLlib cannot be installed here: {made.stderr.strip().splitlines()[-1:]}")
    command = [str(home / "bin" / "python"), str(repository / "examples" / "rllib_ppo.py"), "--total-steps", "3000"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    reports = re.findall(r"(\d+) steps, mean return (-?[\d.]+)", done.stdout)
    assert len(reports) == 3
    assert int(reports[-1][0]) >= 3000
