"""Compiling the plugin of LSF's scheduler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from queuewise.errors import InputError

HOME = Path(__file__).parent / "lsf_plugin"
SOURCE = HOME / "schmod_queuewise.c"
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-fPIC", "-shared")


def build_plugin(out: Path, headers: Path | None, compiler: str = "cc", flags: Sequence[str] = ()) -> None:
    """Compile it, against the headers of a site or against our own declarations."""
    if shutil.which(compiler) is None:
        raise InputError(f"there is no compiler {compiler!r}", hint="install gcc or clang, or name another: --compiler")
    site: tuple[str, ...] = ()
    if headers is not None:
        for name in ("lssched.h", "queuewise_site.h"):
            if not (headers / name).is_file():
                raise InputError(f"there is no {name}", where=str(headers), hint="docs/live.md says what it must hold")
        site = ("-DHAVE_LSSCHED_H", f"-I{headers}")
    command = [compiler, *FLAGS, *site, *flags, "-o", str(out), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise InputError(f"{compiler} failed: {done.stderr.strip()[-800:]}", where=str(SOURCE), hint="check the headers and flags")
