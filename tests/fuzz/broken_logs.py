"""Logs of every format with damaged pieces, as they are and compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Iterator

from fuzz.cases import GPU_LOG, SWF, Case, change_bytes
from reader_examples import EXAMPLES

COMMANDS = (
    ("workload", "info", "log"),
    ("workload", "info", "log", "--format", "FORMAT", "--json"),
    ("simulate", "--workload", "log", "--format", "FORMAT", "--cluster", "4x8:V100-16", "--policy", "sjf+easy"),
    ("simulate", "--workload", "log", "--format", "FORMAT", "--policy", "fcfs", "--partitions"),
    ("workload", "convert", "log", "--format", "FORMAT", "--out", "out.swf"),
    ("clusters", "from-log", "log", "--format", "FORMAT", "--out", "found.toml"),
    ("validate", "log", "--format", "FORMAT"),
    ("predict", "log", "--format", "FORMAT"),
    ("learn", "log", "--format", "FORMAT", "--budget", "1s"),
)
CHANGES_PER_COMMAND = 1
DEEP = 100_000  # levels of nested lists in a document
LONG = 70 << 20  # bytes of a line
LONGER = {"swf": SWF, "csv": GPU_LOG}  # logs with which more than reading can go wrong


def log_cases(seed: int) -> Iterator[Case]:
    for format, examples in EXAMPLES.items():
        rng = random.Random(f"{seed} {format}")
        for number, command in enumerate(COMMANDS * CHANGES_PER_COMMAND):
            content = LONGER.get(format, b"") if number % 2 else b""
            changed = change_bytes(rng, content or rng.choice(examples), rng.randint(1, 4))
            arguments = tuple(format if word == "FORMAT" else word for word in command)
            yield Case(f"{format}-{number}-{command[0]}", arguments, {"log": changed})


def packed_cases(seed: int) -> Iterator[Case]:
    """Compressed logs and archives, cut and changed."""
    rng = random.Random(f"{seed} packed")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("../log.swf")
        member.size = len(SWF)
        tar.addfile(member, io.BytesIO(SWF))
    packings = {"gz": gzip.compress(SWF, mtime=0), "bz2": bz2.compress(SWF), "xz": lzma.compress(SWF), "tar": archive.getvalue()}
    packings["zst"] = b"\x28\xb5\x2f\xfd" + bytes([0x00, 0x70]) + (len(SWF) << 3 | 1).to_bytes(3, "little") + SWF  # one raw block
    for name, packed in packings.items():
        cut = packed[: rng.randint(1, len(packed) - 1)]
        twice = gzip.compress(packed, mtime=0)
        for what, content in {"whole": packed, "cut": cut, "changed": change_bytes(rng, packed, 3), "twice": twice}.items():
            yield Case(f"{name}-{what}", ("workload", "info", "log"), {"log": content})
    yield Case("gz-long-line", ("workload", "info", "log"), {"log": gzip.compress(SWF + b"1" * LONG, 1, mtime=0)})


def deep_cases() -> Iterator[Case]:
    """Documents that are nested more deeply than a parser may follow."""
    texts = {"lists": b"[" * DEEP, "tables": b'{"jobs":' * DEEP, "jobs": b'{"jobs": [{"time": ' + b"[" * DEEP + b"]" * DEEP + b"}]}"}
    for format in ("slurm", "philly", "google2019"):
        for what, text in texts.items():
            yield Case(f"{format}-deep-{what}", ("workload", "info", "log", "--format", format), {"log": text})
