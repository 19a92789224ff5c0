"""The guard against versions of Numba that the engine was not tested with."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from queuewise.numba_version import REQUIREMENT, NumbaVersionError, check_numba

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))


def test_pyproject_states_the_same_bounds() -> None:
    assert REQUIREMENT in PYPROJECT["project"]["dependencies"]


@pytest.mark.parametrize("version", ["0.66.0", "0.67.0", "0.68.1"])
def test_tested_versions_pass_without_a_word(version: str) -> None:
    with warnings.catch_warnings(record=True, action="always") as caught:
        check_numba(version)
    assert caught == []


@pytest.mark.parametrize("version", ["0.60.0", "0.65.1", "0.9.0"])
def test_an_older_version_is_refused_with_the_command_to_install_another(version: str) -> None:
    with pytest.raises(NumbaVersionError) as refused:
        check_numba(version)
    assert refused.value.message == f"Numba {version} cannot compile the engine (tested: 0.66 to 0.68)"
    assert refused.value.hint == "pip install 'numba>=0.66,<0.69'"


@pytest.mark.parametrize("version", ["0.69.0", "0.70.0rc1", "1.0.0"])
def test_a_newer_version_is_warned_about_in_one_line(version: str) -> None:
    with pytest.warns(
        UserWarning, match=rf"Numba {version} has not been tested .*0\.66 to 0\.68.*pip install 'numba>=0\.66,<0\.69'"
    ) as caught:
        check_numba(version)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


LACKING = """
import sys, numba
sys.modules["numba.core.typed_passes"] = None
from queuewise.numba_version import NumbaVersionError
try:
    import queuewise.sim.core.compilation
except NumbaVersionError as error:
    print(error)
"""


def test_a_version_without_the_compiler_classes_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, check=True)
    assert "cannot compile the engine (tested: 0.66 to 0.68) (hint: pip install 'numba>=0.66,<0.69')" in done.stdout
