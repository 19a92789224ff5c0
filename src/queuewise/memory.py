"""What large inputs need, compared with what this machine has, before anything is allocated."""

from __future__ import annotations

import os
import resource

from queuewise.errors import InputError

GIB = 2**30


def memory_limit() -> int:
    """Bytes that this process may use: the memory of the machine, or less if its address space is limited."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return installed if allowed == resource.RLIM_INFINITY else min(installed, allowed)


def check_memory(what: str, need: float, *, hint: str, where: str = "") -> None:
    """Raise an InputError if `need` bytes are more than this process may use."""
    limit = memory_limit()
    if need > limit:
        text = f"{what} would need about {need / GIB:,.1f} GiB of memory, but the limit is {limit / GIB:,.1f} GiB"
        raise InputError(text, where=where, hint=hint)
