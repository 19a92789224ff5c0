"""Errors suggest what the user most likely meant, and the command that installs what is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from queuewise.errors import EXTRA_OF, InputError, MissingPackageError, nearest, optional_imports, unknown_name

ORDERS = ("fcfs", "lcfs", "sjf", "ljf", "srf", "lrf", "smallest", "largest", "wfp3", "unicep", "f1", "f2", "conservative", "none", "easy")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sfj", "sjf"),  # a swap is one slip, not two
        ("fcsf", "fcfs"),
        ("SJF", "sjf"),
        ("cons", "conservative"),
        ("conservativ", "conservative"),
        ("wfp", "wfp3"),
        ("unicef", "unicep"),
        ("larges", "largest"),
        ("esay", "easy"),
    ],
)
def test_the_nearest_name_is_what_was_meant(typed: str, meant: str) -> None:
    assert nearest(typed, ORDERS) == meant


@pytest.mark.parametrize("typed", ["", "qqqq", "tiresias", "xyz"])
def test_nothing_is_suggested_for_what_resembles_nothing(typed: str) -> None:
    assert nearest(typed, ORDERS) is None
    assert nearest(typed, ()) is None


def test_unknown_names_are_answered_with_all_known_ones() -> None:
    error = unknown_name("order", "sfj", ("srf", "sjf"))
    assert isinstance(error, InputError)
    assert str(error) == "unknown order 'sfj' (hint: did you mean 'sjf'? known: sjf, srf)"
    assert "did you mean" not in str(unknown_name("order", "qqqq", ORDERS))


def test_every_optional_package_belongs_to_an_extra_that_exists() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras) == {"train", "report", "export", "milp", "serve", "all", "dev"}
    assert set(EXTRA_OF.values()) == set(extras) - {"all", "dev"}
    assert extras["all"] == ["queuewise[train,report,export,milp,serve]"]


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF.items())
def test_a_missing_optional_package_names_its_install_command(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError) as refused, optional_imports():
        importlib.import_module(package)
    assert refused.value.message == f"this needs {package}, which is not installed"
    assert refused.value.hint == f"pip install 'queuewise[{extra}]'"


def test_a_missing_package_without_an_extra_is_installed_by_its_own_name() -> None:
    with pytest.raises(MissingPackageError, match=r"pip install wandb\b"), optional_imports("wandb"):
        raise ModuleNotFoundError(name="wandb")


def test_a_missing_module_that_is_not_optional_keeps_its_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), optional_imports():
        importlib.import_module("no_such_module")


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from queuewise.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("torch", "train", ["train", "--workload", "bursty", "--cluster", "1x8:V100-16"]),
        ("torch", "train", ["bench-nets", "--widths", "8"]),
        ("matplotlib", "report", ["workload", "info", "poisson", "--jobs", "100", "--plot", "{folder}/figure.png"]),
    ],
)
def test_commands_without_their_extra_name_it(package: str, extra: str, arguments: list[str], tmp_path: Path) -> None:
    code = WITHOUT.format(package=package, arguments=[argument.format(folder=tmp_path) for argument in arguments])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert f"error: this needs {package}, which is not installed\nhint: pip install 'queuewise[{extra}]'\n" in done.stderr
