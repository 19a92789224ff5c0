"""What a case is, and the changes that generators make to sound inputs."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SWF = b"; MaxProcs: 8\n" + b"".join(
    b"%d %d 0 %d %d -1 -1 %d 600 -1 1 %d 1 -1 1 -1 -1 -1\n" % (n, 40 * n, 50 + 37 * n % 400, 1 + n % 4, 1 + n % 4, n % 3)
    for n in range(1, 25)
)
GPU_LOG = b"submit,runtime,gpus,user,requested\n" + b"".join(
    b"%d,%d,%d,u%d,600\n" % (30 * n, 50 + 91 * n % 500, 1 + n % 4, n % 3) for n in range(24)
)

DAMAGED_BYTES = (
    b"", b"-1", b"nan", b"inf", b"-inf", b"1e400", b"1e30", b"9" * 25, b"2147483647", b"9223372036854775807", b"0", b"-0", b"0.5", b",",
    b"|", b";", b"\n", b"\r\n", b"\r", b'"', b'""', b"\0", b"\xff", b"\xe2\x80\xa8", b"\x1b[31m", b" ", b"\t", b"{", b"}", b"[", b"]", b":",
    b"null", b"true", b"=", b"UNLIMITED", b"Unknown", b"gres/gpu=99999999", b"2020-99-99T00:00:00", b"9999-12-31T23:59:59",
    b"9999999-00:00:00", b"1e-320", b"#", b"\x1f\x8b", b"\xef\xbb\xbf", b"<script>", b"1e18", b"a" * 5000,
)  # fmt: skip
DAMAGED_VALUES: tuple[Any, ...] = (
    -1, 0, 1, 2, 0.5, -0.5, 0.005, 1e-300, 1e30, -1e30, 1e308, 10**9, 2**31, 2**63, 2**70, float("inf"), float("-inf"), float("nan"),
    "", "x", "nan", "a" * 3000, "\n", "\x1b[31m", "<script>", "../../etc", True, False, [], {}, [[]], [[[[]]]], [None], ["x"], [1e30],
    {"x": 1}, {"x": {"y": []}},
)  # fmt: skip

Location = tuple[int | str, ...]


@dataclass(frozen=True)
class Case:
    """A command, and the files of the folder that it runs in."""

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


def change_bytes(rng: random.Random, content: bytes, times: int) -> bytes:
    """Cut pieces out and put damaged ones in."""
    changed = bytearray(content)
    for _ in range(times):
        start = rng.randint(0, len(changed))
        changed[start : start + rng.choice((0, 0, 1, 3, 20))] = rng.choice(DAMAGED_BYTES)
    return bytes(changed)


def locations(data: Any, above: Location = ()) -> Iterator[Location]:
    """The places of all values in nested tables and lists, the tables themselves included."""
    entries: Sequence[tuple[int | str, Any]] = ()
    if isinstance(data, dict):
        entries = list(data.items())
    elif isinstance(data, list):
        entries = list(enumerate(data))
    for key, value in entries:
        yield (*above, key)
        yield from locations(value, (*above, key))


def change_value(data: Any, location: Location, value: Any) -> Any:
    """A copy with another value in one place."""
    changed = copy.deepcopy(data)
    table = changed
    for key in location[:-1]:
        table = table[key]
    table[location[-1]] = value
    return changed


def remove_value(data: Any, location: Location) -> Any:
    """A copy without the value in one place."""
    changed = copy.deepcopy(data)
    table = changed
    for key in location[:-1]:
        table = table[key]
    del table[location[-1]]
    return changed


def in_words(location: Location, value: Any) -> str:
    """For the name of a case, in ASCII and short."""
    return f"{'.'.join(map(str, location))}={ascii(value)[:24]}"
