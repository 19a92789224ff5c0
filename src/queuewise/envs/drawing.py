"""Pictures of an env's present state: GPUs by node and the window, as a terminal table or as pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.envs import table
from queuewise.envs.batch import Batch
from queuewise.sim.state import NOW

CELL = 8  # pixels of a GPU
EMPTY, SHARED, BORDER = (235, 235, 235), (250, 200, 90), (255, 255, 255)
PALETTE = np.array([(31, 119, 180), (44, 160, 44), (148, 103, 189), (214, 39, 40), (23, 190, 207), (140, 86, 75)], np.uint8)


def occupancy(batch: Batch, e: int = 0) -> NDArray[np.int64]:
    """[N, GPUs] the job on each GPU: -1 none, -2 several, -3 no such GPU. A cluster without GPUs has one column, the whole node."""
    gpus = batch.cluster.node_gpus
    cells = np.full((len(gpus), max(int(gpus.max()), 1)), -1, np.int64)
    if gpus.any():
        cells[np.arange(cells.shape[1])[None, :] >= gpus[:, None]] = -3
    state, play = batch.state(e), batch.play_of(e)
    for j in play.running[: play.number[table.ON_MACHINE]]:
        for piece in range(state.first_piece[j], state.first_piece[j] + state.num_pieces[j]):
            n, mask = int(state.piece_node[piece]), int(state.piece_gpus[piece])
            for g in range(cells.shape[1]):
                if mask >> g & 1 or not gpus.any():
                    cells[n, g] = j if cells[n, g] in (-1, j) else -2
    return cells


def picture(batch: Batch, e: int = 0) -> NDArray[np.uint8]:
    """[height, width, 3] a row a node, a column a GPU, a colour a job; below, a bar for each waiting job, as long as the job is wide."""
    cells = occupancy(batch, e)
    colours = np.empty((*cells.shape, 3), np.uint8)
    colours[:] = PALETTE[cells % len(PALETTE)]
    for code, colour in ((-1, EMPTY), (-2, SHARED), (-3, BORDER)):
        colours[cells == code] = colour
    image = np.repeat(np.repeat(colours, CELL, axis=0), CELL, axis=1)
    image[::CELL], image[:, ::CELL] = BORDER, BORDER
    window = np.full((2 * batch.layout.window, image.shape[1], 3), BORDER, np.uint8)
    size = batch.episode(e).task.job_size
    total = max(batch.cluster.num_gpus, 1)
    for q, j in enumerate(batch.window_jobs(e)):
        if j >= 0:
            window[2 * q, : max(1, int(image.shape[1] * min(size[j] / total, 1.0)))] = PALETTE[j % len(PALETTE)]
    return np.concatenate([image, window])


def show(batch: Batch, e: int = 0) -> None:
    """Print the state to the terminal."""
    from rich.console import Console
    from rich.table import Table

    cells = occupancy(batch, e)
    grid = Table(title=f"t = {batch.state(e).clock[NOW]:,.0f} s", box=None, show_header=False)
    for name, row in zip(batch.cluster.node_names, cells, strict=True):
        grid.add_row(name, " ".join({-1: "·", -2: "▒", -3: " "}.get(int(cell), str(cell)) for cell in row))
    waiting = [str(j) for j in batch.window_jobs(e) if j >= 0]
    grid.add_row("waiting", " ".join(waiting) or "nobody")
    Console().print(grid)
