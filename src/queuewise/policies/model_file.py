"""Files of trained models: where a run keeps them, and what is in them. Needs no torch.

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
    """The model that a user names: a file, a run folder or a seed's folder (its best), or a folder of checkpoints (the last)."""
    home = Path(reference)
    if home.is_file():
        return home
    if not home.is_dir():
        raise InputError("there is no such run or model", where=str(home), hint="give a folder or file that queuewise train wrote")
    if (home / BEST).is_file():
        return home / BEST
    last = max(home.glob(CHECKPOINTS), default=None)
    if last is not None:
        return last
    seeds = sorted(path.parent for path in home.glob(f"seed-*/{BEST}"))
    hint = f"its training has not ended; give {seeds[0]}" if seeds else f"give a folder that queuewise train wrote, with {BEST} in it"
    raise InputError("holds no trained model", where=str(home), hint=hint)


def read_card(path: Path) -> dict[str, Any]:
    """The card, or an InputError that says what is wrong with the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), hint="check the path") from None
    except (SafetensorError, OSError) as error:
        raise damaged(path, error) from None
    if KEY not in metadata:
        raise InputError("was not written by queuewise", where=str(path), hint="give a file that queuewise train wrote")
    card: dict[str, Any] = json.loads(metadata[KEY])
    return card


def read_model(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """What is needed to decide, `network.*` and `scaling.*`, and the card; the rest of a checkpoint is left in the file."""
    from safetensors import SafetensorError, safe_open

    card = read_card(path)
    try:
        with safe_open(path, "np") as file:
            names = [name for name in file.keys() if name.startswith(("network.", "scaling."))]  # noqa: SIM118 (it is no dict)
            return {name: file.get_tensor(name) for name in names}, card
    except SafetensorError as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"is damaged or truncated: {error}", where=str(path), hint="delete it to go on from the one before, or train again")
