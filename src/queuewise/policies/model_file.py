"""Files of trained models: where a run stores them, and what they contain. Needs no torch.

One safetensors file holds arrays by name and, in its header, a card in JSON. docs/training.md lists both. The card has digests of
itself and of the arrays, so a file that was changed after it was written is noticed when it is read. A digest is no signature:
`check_pinned` compares a file with one that came by another way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from queuewise.config import Config, validate
from queuewise.errors import InputError
from queuewise.plain_text import printable

FORMAT = 1  # of the file; raise it when older versions could not read it
DIGEST = "digest"  # key of the card
DECIDING = ("network.", "scaling.")  # how the names of arrays begin that are needed to decide
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


class NetworkFields(Config):
    model_config = ConfigDict(extra="allow", strict=True)
    name: str


class CardFields(Config):
    """What every card has; further fields are free."""

    model_config = ConfigDict(extra="allow", strict=True)
    format: int
    algo: str
    network: NetworkFields
    task: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    frames: int = 0
    decision: str = ""
    layers: list[dict[str, Any]] | None = None
    digest: dict[str, str] | None = None


def read_card(path: Path) -> dict[str, Any]:
    """Return the card; raise an InputError that says what is wrong with the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
    except (FileNotFoundError, PermissionError) as error:  # safetensors says of a file without rights that there is none
        if isinstance(error, FileNotFoundError) and not path.exists():
            raise InputError("no such file", where=str(path), hint="check the path") from None
        raise InputError("cannot be read: permission denied", where=str(path), hint="check the permissions of the file") from None
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise damaged(path, error) from None
    if KEY not in metadata:
        raise InputError("was not written by queuewise", where=str(path), hint="use a file that queuewise train wrote")
    try:
        card: dict[str, Any] = json.loads(metadata[KEY])
    except ValueError as error:
        raise damaged(path, error) from None
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise InputError(f"has format {found}; this version reads {FORMAT}", where=str(path), hint="use the version that wrote it")
    validate(CardFields, card, source=f"{path} (card)")
    return card


def read_model(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays needed to decide (`network.*` and `scaling.*`) and the card; the rest of a checkpoint is not read."""
    from safetensors import SafetensorError, safe_open

    card = read_card(path)
    try:
        with safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys() if name.startswith(DECIDING)}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, TypeError) as error:
        raise damaged(path, error) from None
    check_arrays(arrays, card, path, ("model",))
    return arrays, card


def digests(arrays: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the card with the arrays needed to decide (`model`), and of all other arrays (`state`)."""
    plain = json.dumps({name: value for name, value in card.items() if name != DIGEST}, sort_keys=True)
    sums = {"model": hashlib.sha256(plain.encode()), "state": hashlib.sha256()}
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest = sums["model" if name.startswith(DECIDING) else "state"]
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.data.cast("B") if values.size else b"")
    return {part: digest.hexdigest() for part, digest in sums.items()}


def check_arrays(arrays: Mapping[str, NDArray[Any]], card: Mapping[str, Any], path: Path, parts: Sequence[str]) -> None:
    """Refuse arrays that are not those that were written, and weights that are not finite."""
    if DIGEST in card:
        found = digests(arrays, card)
        changed = [part for part in parts if card[DIGEST].get(part) != found[part]]
        if changed:
            raise damaged(path, "its contents do not match the digest in its card")
    for name, values in arrays.items():
        if name.startswith(DECIDING) and not np.isfinite(values).all():
            raise InputError(f"the weights {name!r} are not all finite", where=str(path), hint="use an earlier checkpoint, or train again")


def check_pinned(path: Path, expected: Sequence[str]) -> None:
    """Refuse a file whose SHA-256 is none of the expected ones."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in [one.lower() for one in expected]:
        raise InputError(f"has SHA-256 {found}, which --model-sha256 does not list", where=str(path), hint="use the model that was meant")


def damaged(path: Path, error: Exception | str) -> InputError:
    hint = "delete it to continue from the previous one, or train again"
    return InputError(f"is damaged or truncated: {printable(str(error))}", where=str(path), hint=hint)
