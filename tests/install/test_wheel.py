"""The wheel in an empty environment: it installs, has all its files, and runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def dist(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scripts/build builds, from a copy of the files that are under version control."""
    pytest.importorskip("build")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    files = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True, cwd=repository).stdout.split("\0")
    for name in filter(None, files):
        if name.split("/")[0] in ("src", "scripts", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((repository / name).read_bytes())
            (source / name).chmod((repository / name).stat().st_mode)
    environment = os.environ | {"PYTHON": sys.executable}
    subprocess.run(["bash", "scripts/build", str(folder)], check=True, cwd=source, env=environment, capture_output=True)
    return folder


@pytest.mark.slow
def test_wheel_and_sdist_have_all_files(dist: Path, repository: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert list(dist.glob("*.tar.gz"))
    packed = set(zipfile.ZipFile(wheel).namelist())
    package = repository / "src" / "queuewise"
    wanted = {
        f"queuewise/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix in (".py", ".toml", ".html", ".css", ".js", ".txt", ".typed")
    }
    assert wanted - packed == set()


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_environment(dist: Path, repository: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(repository / "constraints.txt"), f"{wheel}[report]"]
    subprocess.run(install, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "QUEUEWISE_CACHE_DIR": str(tmp_path / "cache")
    }
    demo = [str(python), str(repository / "examples" / "compare_policies.py"), str(tmp_path / "demo")]
    done = subprocess.run(demo, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "saf+easy~3d" in done.stdout
    assert done.stdout.count("\n  queuewise ") == 3
    assert (tmp_path / "demo" / "waits.png").stat().st_size > 10_000
    listed = subprocess.run([str(python), "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in listed
