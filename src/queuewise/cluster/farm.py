"""Farms of hosts without GPUs that are drawn at random: `farm:50,cores=16-64,mem=64-512,seed=3`.

Cores and memory of each host are drawn from the sizes that hosts are sold with, within the given ranges, as lsf_autohost
draws its hosts. Without a seed the name stands for many farms, of which `--cluster` takes the one with seed 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from queuewise.cluster.spec import MOST_NODES, Cluster, NodeGroup, build
from queuewise.errors import InputError

PREFIX = "farm:"
SHAPE = "farm:N,cores=A-B,mem=A-B[,seed=S]"
CORES = (8, 16, 32, 64, 128)
MEM_GIB = (32, 64, 128, 256, 512, 1024)
EXAMPLE = "farm:50,cores=16-64,mem=64-512,seed=3"


@dataclass(frozen=True)
class Farm:
    """Hosts to draw."""

    hosts: int
    cores: tuple[int, ...] = CORES
    mem_gib: tuple[int, ...] = MEM_GIB
    seed: int | None = None

    @property
    def name(self) -> str:
        """The name without the seed."""
        return f"{PREFIX}{self.hosts},cores={self.cores[0]}-{self.cores[-1]},mem={self.mem_gib[0]}-{self.mem_gib[-1]}"

    def draw(self, seed: int) -> Cluster:
        """The farm of this seed."""
        rng = np.random.default_rng(seed)
        cores, memory = rng.choice(self.cores, self.hosts), rng.choice(self.mem_gib, self.hosts)
        groups = [NodeGroup(count=1, cpus=int(c), mem_gib=int(m), name="host") for c, m in zip(cores, memory, strict=True)]
        return build(f"{self.name},seed={seed}", groups)


def parse_farm(name: str) -> Farm:
    """The farm of a name. Raises an error if it is none."""
    first, *options = name.removeprefix(PREFIX).split(",")
    if not name.startswith(PREFIX) or not re.fullmatch(r"[0-9]{1,7}", first) or not 1 <= int(first) <= MOST_NODES:
        raise InputError(f"{name!r} is no farm of 1 to {MOST_NODES:,} hosts", hint=f"write {SHAPE}, for example {EXAMPLE}")
    found = {"cores": CORES, "mem": MEM_GIB}
    seed: int | None = None
    seen: set[str] = set()
    for option in options:
        key, _, value = option.partition("=")
        if key in seen or key not in (*found, "seed"):
            raise InputError(f"{name!r}: {option!r} is unknown or given twice", hint=f"write {SHAPE}, for example {EXAMPLE}")
        seen.add(key)
        if key == "seed":
            seed = _seed(name, value)
        else:
            found[key] = _within(name, option, value, found[key])
    return Farm(int(first), found["cores"], found["mem"], seed)


def _seed(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise InputError(f"{name!r}: seed {value!r} is no number of at most nine digits", hint=f"for example {EXAMPLE}")
    return int(value)


def _within(name: str, option: str, value: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes within a range such as 16-64."""
    limits = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", value)
    chosen = tuple(size for size in sizes if limits and int(limits[1]) <= size <= int(limits[2]))
    if not chosen:
        listed = ", ".join(map(str, sizes))
        raise InputError(f"{name!r}: {option!r} is no range with a size of a host in it", hint=f"sizes are {listed}; for example {EXAMPLE}")
    return chosen
