"""Files of trained models: where a run stores them, and what they contain. Needs no torch.

One safetensors file holds arrays by name and, in its header, a card in JSON. docs/training.md lists both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError

KEY = "queuewise"  # of the card in the file's header
SUFFIX = ".safetensors"
BEST = f"best{SUFFIX}"
CHECKPOINTS = f"iteration-*{SUFFIX}"

Arrays = dict[str, NDArray[np.float32]]


def find_model(reference: str | Path) -> Path:
    """The model file that a reference names.

    A reference is a file, a run folder or the folder of a seed (its best model), or a folder of checkpoints (the last).
    """
    home = Path(reference).expanduser()
    if home.is_file():
        return home
    if not home.is_dir():
        raise InputError("there is no such run or model", where=str(home), hint="use a folder or file that queuewise train wrote")
    if (home / BEST).is_file():
        return home / BEST
    last = max(home.glob(CHECKPOINTS), default=None)
    if last is not None:
        return last
    seeds = sorted(path.parent for path in home.glob(f"seed-*/{BEST}"))
    hint = f"its training has not ended; use {seeds[0]}" if seeds else f"use a folder that queuewise train wrote, with {BEST} in it"
    raise InputError("holds no trained model", where=str(home), hint=hint)


def read_card(path: Path) -> dict[str, Any]:
    """Return the card; raise an InputError that says what is wrong with the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), hint="check the path") from None
    except (SafetensorError, OSError) as error:
        raise damaged(path, error) from None
    if KEY not in metadata:
        raise InputError("was not written by queuewise", where=str(path), hint="use a file that queuewise train wrote")
    card: dict[str, Any] = json.loads(metadata[KEY])
    return card


def read_model(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays needed to decide (`network.*` and `scaling.*`) and the card; the rest of a checkpoint is not read."""
    from safetensors import SafetensorError, safe_open

    card = read_card(path)
    try:
        with safe_open(path, "np") as file:
            names = [name for name in file.keys() if name.startswith(("network.", "scaling."))]  # noqa: SIM118 (it is no dict)
            return {name: file.get_tensor(name) for name in names}, card
    except SafetensorError as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"is damaged or truncated: {error}", where=str(path), hint="delete it to continue from the previous one, or train again"
    )
