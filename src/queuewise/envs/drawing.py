"""Drawings of an env's present state, as an image and in the terminal.

Both have one row per node, one cell per GPU and one colour per job. The window is beside the nodes (image) or below
them (terminal). In the image, the fill level of a cell is the time for which the GPU is expected to be held,
÷ time_scale_s, and jobs of the window that fit now are bright.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from queuewise.envs.batch import EnvBatch

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]

CELL, GAP, MARGIN = 12, 2, 12  # pixels of a GPU, between GPUs, around everything
QUEUE_WIDTH = 220  # pixels of the part that shows the window
LINES = 24  # nodes in one column
SCALE = 3  # pixels per dot of a character
PAPER, INK, EMPTY = (250, 250, 248), (60, 64, 72), (226, 228, 230)
NOBODY, SEVERAL, NO_GPU = -1, -2, -3  # in place of a job
SHARED: Colour = (120, 120, 128)
PALETTE: tuple[Colour, ...] = (
    (31, 119, 180), (214, 96, 30), (44, 140, 60), (176, 48, 66), (122, 88, 172), (20, 150, 160), (196, 152, 20), (190, 84, 150),
    (92, 104, 40), (110, 72, 56),
)  # fmt: skip
DOTS = {  # characters as rows of three dots
    "0": "755557", "1": "262227", "2": "717747", "3": "717717", "4": "557711", "5": "747717", "6": "747757", "7": "711222",
    "8": "757757", "9": "757717", ":": "020020", "%": "512245", "d": "117557", "q": "757711", " ": "000000",
}  # fmt: skip


def occupancy(batch: EnvBatch, e: int = 0) -> NDArray[np.int64]:
    """[N, GPUs] the job on each GPU, or NOBODY, SEVERAL or NO_GPU.

    A cluster without GPUs has one column for the whole node.
    """
    gpus = batch.cluster.node_gpus
    cells = np.full((len(gpus), max(int(gpus.max()), 1)), NOBODY, np.int64)
    if gpus.any():
        cells[np.arange(cells.shape[1])[None, :] >= gpus[:, None]] = NO_GPU
    state, episode_state = batch.state(e), batch.episode_state(e)
    for j in episode_state.running[: episode_state.count.on_machine]:
        for piece in range(state.first_piece[j], state.first_piece[j] + state.num_pieces[j]):
            n, mask = int(state.piece_node[piece]), int(state.piece_gpus[piece])
            for g in range(cells.shape[1]):
                if mask >> g & 1 or not gpus.any():
                    cells[n, g] = j if cells[n, g] in (NOBODY, j) else SEVERAL
    return cells


def _colour(job: int) -> Colour:
    return SHARED if job == SEVERAL else PALETTE[job % len(PALETTE)]


def _pale(colour: Colour) -> Colour:
    return (255 + 2 * colour[0]) // 3, (255 + 2 * colour[1]) // 3, (255 + 2 * colour[2]) // 3


def _faint(colour: Colour) -> Colour:
    return _pale(_pale(_pale(colour)))


def _fill(image: Image, top: int, left: int, height: int, width: int, colour: Colour) -> None:
    image[top : top + height, left : left + width] = colour


def picture(batch: EnvBatch, e: int = 0) -> Image:
    """[height, width, 3] the image. Its size depends only on the cluster and the window."""
    cells = occupancy(batch, e)
    nodes, gpus = cells.shape
    columns = -(-nodes // LINES)
    block = gpus * (CELL + GAP) + MARGIN
    top = 2 * MARGIN + 6 * SCALE
    height = max(min(nodes, LINES) * (CELL + GAP), 4 * batch.layout.window)
    image = np.full((top + height + MARGIN, 2 * MARGIN + columns * block + QUEUE_WIDTH, 3), PAPER, np.uint8)
    _write(image, MARGIN, MARGIN, _headline(batch, e))
    level = _levels(batch, e, cells)
    for n, g in np.ndindex(*cells.shape):
        if cells[n, g] != NO_GPU:
            at = top + n % LINES * (CELL + GAP), MARGIN + n // LINES * block + g * (CELL + GAP)
            _draw_cell(image, *at, int(cells[n, g]), float(level[n, g]))
    _draw_window(image, top, MARGIN + columns * block, height, batch, e)
    return image


def _draw_cell(image: Image, top: int, left: int, job: int, level: float) -> None:
    if job == NOBODY:
        _fill(image, top, left, CELL, CELL, EMPTY)
        return
    filled = max(2, round(CELL * level))
    _fill(image, top, left, CELL, CELL, _faint(_colour(job)))
    _fill(image, top + CELL - filled, left, filled, CELL, _colour(job))


def _levels(batch: EnvBatch, e: int, cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """[N, GPUs] remaining expected time ÷ time scale, clipped to [0, 1]."""
    expected, now = batch.state(e).expected, batch.state(e).clock.now
    until = np.where(cells >= 0, expected[np.maximum(cells, 0)], batch.episode_state(e).node_until[:, None])
    with np.errstate(invalid="ignore"):
        return np.clip((until - now) / batch.settings.time_scale_s, 0.0, 1.0)


def _draw_window(image: Image, top: int, left: int, height: int, batch: EnvBatch, e: int) -> None:
    """Draw one bar per job.

    Its length is the square root of the job's share of the cluster, so small jobs are visible.
    """
    size = batch.episode(e).task.job_size
    total = float(batch.cluster.num_gpus or batch.cluster.num_nodes)
    step = height / batch.layout.window
    for q, j in enumerate(batch.window_jobs(e)):
        if j < 0:
            break
        length = max(4, round(QUEUE_WIDTH * min(float(size[j]) / total, 1.0) ** 0.5))
        fits = batch.mask[e, q] if batch.settings.problem != "host" else True
        colour = _colour(int(j)) if fits else _faint(_colour(int(j)))
        _fill(image, top + round(q * step), left, max(2, round(step) - 1), length, colour)


def _headline(batch: EnvBatch, e: int) -> str:
    """Time since the first submission, share in use and length of the queue."""
    seconds = int(batch.state(e).clock.now - batch.episode(e).task.scale.first_time)
    use = round(100 * _use(batch, e))
    waiting = int(batch.episode_state(e).count.waiting)
    return f"{seconds // 86400}d {seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}  {use}%  q {waiting}"


def _use(batch: EnvBatch, e: int) -> float:
    return float(batch.episode_state(e).value.busy) / float(batch.episode(e).task.scale.capacity)


def _write(image: Image, top: int, left: int, text: str) -> None:
    for number, character in enumerate(text):
        for row, dots in enumerate(DOTS[character]):
            for column in range(3):
                if int(dots) >> (2 - column) & 1:
                    _fill(image, top + row * SCALE, left + (number * 4 + column) * SCALE, SCALE, SCALE, INK)


def _terminal_rows(batch: EnvBatch, e: int) -> Iterator[tuple[str, str]]:
    marks = {NOBODY: "[dim]··[/]", SEVERAL: "[reverse]▒▒[/]", NO_GPU: "  "}
    for name, row in zip(batch.cluster.node_names, occupancy(batch, e), strict=True):
        cells = [marks.get(int(job)) or "[white on rgb({},{},{})]{:02}[/]".format(*_colour(int(job)), job % 100) for job in row]
        yield name, " ".join(cells)


def show(batch: EnvBatch, e: int = 0) -> None:
    """Print the state to the terminal. A job is shown by the last two digits of its index."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for name, row in _terminal_rows(batch, e):
        grid.add_row(name, row)
    episode, now = batch.episode(e), float(batch.state(e).clock.now)
    queue = Table("job", "size", "estimate", "waited", "fits", box=None, header_style="dim", padding=(0, 1, 0, 0))
    for q, j in enumerate(job for job in batch.window_jobs(e) if job >= 0):
        fits = "yes" if batch.settings.problem == "host" or batch.mask[e, q] else ""
        wait = now - float(episode.workload.submit[j])
        queue.add_row(str(j), f"{episode.task.job_size[j]:g}", f"{episode.estimate[j]:,.0f} s", f"{wait:,.0f} s", fits)
    console = Console()
    console.print(_headline(batch, e), highlight=False)  # not as the grid's title, which would wrap at the grid's width
    console.print(grid)
    console.print(queue if queue.row_count else "no job is waiting")
