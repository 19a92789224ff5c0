"""How large the content of a Zstandard file can be, before anything is unpacked.

A file is a sequence of frames, and a frame one of blocks (RFC 8878). The header of a block says how much it unpacks to, or that it is
compressed, and then it is at most MOST_OF_BLOCK. Sizes in the headers of frames are not needed, and may be missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

MAGIC = 0xFD2FB528
SKIPPABLE = 0x184D2A5  # the upper 28 bits of the magic numbers of frames without content
MOST_OF_BLOCK = 1 << 17  # bytes
RAW, REPEATED, COMPRESSED = range(3)  # kinds of blocks
ID_BYTES, SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)  # of the dictionary's number and of the content's size, by two bits of the header
CHECKSUM_BYTES = 4


def unpacked_size(path: Path) -> int:
    """Bytes that the file can have at most when it is unpacked. What follows damage is not counted: no program can read it."""
    total = 0
    with path.open("rb") as file:
        while len(start := file.read(4)) == 4:
            magic = int.from_bytes(start, "little")
            if magic == MAGIC:
                total += _frame_size(file)
            elif magic >> 4 == SKIPPABLE:
                file.seek(int.from_bytes(file.read(4), "little"), 1)
            else:
                break
    return total


def _frame_size(file: BinaryIO) -> int:
    """The same of one frame. The file is then behind it."""
    (descriptor,) = file.read(1) or b"\0"
    single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    size_bytes = SIZE_BYTES[descriptor >> 6] or single
    file.seek(1 - single + ID_BYTES[descriptor & 3] + size_bytes, 1)
    total, last = 0, 0
    while not last and len(header := file.read(3)) == 3:
        number = int.from_bytes(header, "little")
        last, kind, size = number & 1, number >> 1 & 3, number >> 3
        total += MOST_OF_BLOCK if kind == COMPRESSED else size
        file.seek(1 if kind == REPEATED else size, 1)
    if has_checksum:
        file.seek(CHECKSUM_BYTES, 1)
    return total
