"""The memory of envs: one block of bytes per env, and templates of episodes that are copied into it.

A block holds all arrays of an env (machine, spare machine, state, episode state) and the lists of their addresses.
To reset an env, the block of the episode's template is copied over the env's block. This allocates nothing once the
env's block is large enough.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from queuewise.envs import columns
from queuewise.envs.columns import Task
from queuewise.envs.episodes import Episode
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.state import World
from queuewise.sim.core.tables import I64, Scalars, addresses_of, check_types, has_known

ALIGNMENT = 8  # bytes, of arrays
CACHE_LINE = 64  # bytes
LARGE_PAGE = 1 << 21  # bytes
MAX_SHARED_BYTES = 4096  # larger arrays are not compared with those of other windows
Table = TypeVar("Table", World, Task)


class Block:
    """The bytes of several tables, and the offset of each array in them.

    The lists of addresses that kernels receive come first, then named numbers, then the arrays, small ones before large
    ones. What every step uses (counters, what is free, classes, nodes) is small, so it lies next to each other. The
    tables numbered in `seldom` are rarely used and come last.
    """

    def __init__(self, *tables: Any, seldom: tuple[int, ...] = ()) -> None:
        self._tables = tables
        owners: dict[int, tuple[bool, NDArray[Any]]] = {}  # memory that several arrays may lie in
        lies_in = []  # the owner of each array's memory, and its offset in it
        for number, arrays in enumerate(tables):
            for array in arrays:
                owner = array if array.base is None else _owner(array)
                owners.setdefault(id(owner), (number in seldom, owner))
                lies_in.append((id(owner), 0 if owner is array else array.ctypes.data - owner.ctypes.data))
        ordered = sorted(owners.values(), key=lambda owner: (owner[0], not isinstance(owner[1], Scalars), owner[1].nbytes))
        size = round_to_cache_line(8 * len(lies_in))
        places: dict[int, int] = {}
        for _, owner in ordered:
            places[id(owner)] = size
            size += -(-owner.nbytes // ALIGNMENT) * ALIGNMENT
        content = bytearray(round_to_cache_line(size))
        for _, owner in ordered:
            at = places[id(owner)]
            content[at : at + owner.nbytes] = owner.tobytes()
        self.bytes = np.frombuffer(content, np.uint8)
        offsets = np.array([places[owner_id] + offset for owner_id, offset in lies_in], np.int64)
        self.offsets = np.split(offsets, np.cumsum([len(arrays) for arrays in tables])[:-1])
        relative = np.concatenate(self.offsets)
        self.num_addresses = len(relative)
        self.bytes[: relative.nbytes] = relative.view(np.uint8)
        lengths = [len(offsets) for offsets in self.offsets]
        self.lists = 8 * np.cumsum([0, *lengths[:-1]])  # offsets of the tables' lists of addresses

    def load(self, memory: NDArray[np.uint8], home: int) -> None:
        """Copy the block into memory at address `home`, and make its addresses valid there."""
        memory[: len(self.bytes)] = self.bytes
        addresses = memory[: 8 * self.num_addresses].view(np.int64)
        addresses += home

    def view(self, number: int, memory: NDArray[np.uint8]) -> Any:
        """Table `number` as arrays in `memory`, which holds a copy of the block."""
        arrays = self._tables[number]
        offsets = self.offsets[number]
        return type(arrays)(*(
            np.ndarray(array.shape, array.dtype, memory.data, int(offset), array.strides).view(type(array))
            for array, offset in zip(arrays, offsets, strict=True)
        ))  # fmt: skip


def round_to_cache_line(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE


def _owner(array: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory of this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Template(NamedTuple):
    episode: Episode
    block: Block
    world: Any
    task: Any
    following: I64  # [NEXT_SIZE] entries of Frame.next for this template
    plain: bool  # whether the entry for plain envs can step it


MACHINE, SPARE, STATE, EPISODE_STATE = range(4)  # tables of an env's block
BLOCK_LISTS = np.array([1, 2, 3, 5])  # positions of their addresses in Frame.lists
SHARED_LISTS = np.array([columns.WORLD_LIST, columns.TASK_LIST])  # positions of the tables that envs share with the template
SHARED = slice(columns.NEXT_WORLD, columns.NEXT_TASK + 1)

_SHARED_ARRAYS: WeakValueDictionary[tuple[type, str, bytes], NDArray[Any]] = WeakValueDictionary()


def _share_small_arrays(arrays: Table) -> Table:
    """The same table, with one copy of each small array that equals one of another window (nodes, classes, settings).

    A shared copy stays in the processor's caches.
    """

    def find(array: Any) -> Any:
        if array.base is not None or array.nbytes > MAX_SHARED_BYTES:
            return array
        return _SHARED_ARRAYS.setdefault((type(array), array.dtype.str, array.tobytes()), array)

    return type(arrays)(*map(find, arrays))


def make_template(episode: Episode) -> Template:
    episode = replace(episode, world=_share_small_arrays(episode.world), task=_share_small_arrays(episode.task))
    for arrays in (episode.machine, episode.state, episode.episode_state):
        check_types(arrays)
    block = Block(episode.machine, episode.machine.clone(), episode.state, episode.episode_state, seldom=(SPARE,))
    world, task = addresses_of(episode.world), addresses_of(episode.task)
    following = np.zeros(columns.NEXT_SIZE, np.int64)
    if not JIT_DISABLED:
        following[:] = block.bytes.ctypes.data, len(block.bytes), world.ctypes.data, task.ctypes.data
    plain = has_known(episode.world, columns.PLAIN_WORLD) and has_known(episode.task, columns.PLAIN_TASK)
    return Template(episode, block, world, task, following, plain)


def zeroed_memory(size: int) -> NDArray[np.uint8]:
    """`size` zero bytes, in pages of 2 MiB if the system has them and at least one is filled.

    Many envs in small pages need more pages than the processor's address cache holds.
    """
    if size < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.zeros(size + CACHE_LINE, np.uint8)
        return memory[-memory.ctypes.data % CACHE_LINE :][:size]
    pages = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return memory[-memory.ctypes.data % LARGE_PAGE :][:size]
