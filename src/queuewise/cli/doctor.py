"""`queuewise doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import json as json_text
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import tyro

BASE = ("numpy", "numba", "gymnasium", "polars", "pydantic", "tyro", "rich", "safetensors", "scikit-learn", "cma")
PROGRAMS = {  # program -> what it is for, and the package of Debian and Ubuntu that has it
    "sacct": ("to write the log of a Slurm cluster", "slurm-client"),
    "scontrol": ("to describe the nodes of a Slurm cluster, and by queuewise slurm", "slurm-client"),
    "squeue": ("by queuewise slurm", "slurm-client"),
    "sinfo": ("by queuewise slurm", "slurm-client"),
    "slurmctld": ("for tests with a real Slurm", "slurmctld slurmd munge"),
    "chromium": ("for tests of report.html in a browser", "chromium"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    state: str  # "ok", "missing" (optional) or "broken"
    remedy: str = ""


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what is missing and how to get it. Ends with exit code 2 if something that is always needed is broken."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: a list of objects with what, found, state (ok, missing, broken) and remedy."""

    def run(self) -> int:
        from queuewise.cli.console import print_table

        findings = [*_python(), *_packages(), *_extras(), *_machine(), *_cache(), *_programs()]
        if self.json:
            print(json_text.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            print_table(["", "found", "state"], [[finding.what, finding.found, finding.state] for finding in findings], left=3)
            for finding in findings:
                if finding.remedy:
                    print(f"{finding.what}: {finding.remedy}")
        return 2 if any(finding.state == "broken" for finding in findings) else 0


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding(
        "Python", f"{version}, {platform.system()} {platform.machine()}", "broken" if old else "ok", "use 3.11 or newer" if old else ""
    )
    yield Finding("queuewise", metadata.version("queuewise"), "ok")


def _packages() -> Iterator[Finding]:
    from queuewise.errors import QueuewiseError
    from queuewise.numba_version import check_numba

    for name in BASE:
        version = _version(name)
        if version is None:
            yield Finding(name, "not installed", "broken", f"pip install {name}")
            continue
        state, remedy = "ok", ""
        if name == "numba":
            try:
                check_numba(version)
            except QueuewiseError as error:
                state, remedy = "broken", error.hint or error.message
        yield Finding(name, version, state, remedy)


def _extras() -> Iterator[Finding]:
    from queuewise.errors import EXTRA_OF

    for extra in dict.fromkeys(EXTRA_OF.values()):
        versions = {name: _version(name) for name, its in EXTRA_OF.items() if its == extra}
        missing = [name for name, version in versions.items() if version is None]
        found = ", ".join(f"{name} {version}" for name, version in versions.items() if version) or "nothing"
        remedy = f"pip install 'queuewise[{extra}]'" if missing else ""
        yield Finding(f"extra {extra}", found, f"without {', '.join(missing)}" if missing else "ok", remedy)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> Iterator[Finding]:
    from queuewise.memory import memory_limit

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [f"{name}={os.environ[name]}" for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_DISABLE_JIT") if name in os.environ]
    yield Finding("threads", f"{cores} cores{', ' + ', '.join(limits) if limits else ''}", "ok")
    yield Finding("memory", f"{memory_limit() / 2**30:.1f} GiB for this process", "ok")


def _cache() -> Iterator[Finding]:
    from queuewise.cache_folder import cache_home

    home = cache_home()
    size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    yield Finding("cache", f"{home}, {size / 2**20:.0f} MiB", "ok")
    try:
        from queuewise.sim.core.compilation import cache_is_warm
    except Exception as error:  # whatever is wrong with the compiler: this is the place to say so
        yield Finding("engine", type(error).__name__, "broken", "pip install --force-reinstall queuewise")
        return
    warm = cache_is_warm()
    yield Finding("engine", "compiled" if warm else "not compiled yet", "ok", "" if warm else "the first replay compiles it, once")


def _programs() -> Iterator[Finding]:
    for program, (purpose, package) in PROGRAMS.items():
        path = shutil.which(program)
        remedy = "" if path else f"only needed {purpose}: apt-get install {package}"
        yield Finding(program, path or "not found", "ok" if path else "missing", remedy)
