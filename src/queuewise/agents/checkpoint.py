"""Checkpoints: one safetensors file each, with a JSON card in its header, written under another name and renamed: what is there is whole.

A *checkpoint* holds everything a learner needs to go on to the bit. A *model* holds the network's weights and the scaling of its
observations: what is needed to decide. Both carry the same card: docs/training.md lists its fields.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from queuewise import __version__
from queuewise.agents.learner import Learner, State
from queuewise.agents.settings import TrainSettings
from queuewise.agents.spec import Spec, read_spec
from queuewise.errors import InputError
from queuewise.policies.model_file import BEST, CHECKPOINTS, KEY, SUFFIX, damaged, read_card
from queuewise.runs import replacing, write_text

FORMAT = 1


def make_card(settings: TrainSettings, spec: Spec, seed: int, **facts: Any) -> dict[str, Any]:
    """What a file must tell of its contents."""
    return {
        "format": FORMAT,
        "queuewise": __version__,
        "git": _revision(),
        "algo": settings.algo,
        "network": {"name": settings.net, **settings.network.model_dump()},
        "task": spec.as_json(),
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
        **facts,
    }


def _revision() -> str | None:
    """The git revision of the sources in use, where they are in a repository."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def write_file(path: Path, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
    with replacing(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {KEY: json.dumps(card)})


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and card, or an InputError that says what is wrong with the file."""
    card = read_card(path)
    try:
        return load_file(path), card
    except SafetensorError as error:
        raise damaged(path, error) from None


def check_card(card: dict[str, Any], settings: TrainSettings, spec: Spec, *, where: str, same_size: bool) -> None:
    """Refuse a file made for another task or network than is wanted. Without `same_size`, windows and hosts may differ in number."""
    theirs, wanted = card["network"], {"name": settings.net, **settings.network.model_dump()}
    if theirs != wanted:
        differing = ", ".join(f"{key} {theirs.get(key)} instead of {wanted.get(key)}" for key in wanted if theirs.get(key) != wanted[key])
        raise InputError(f"is of another network: {differing}", where=where, hint="give the same --net and --network settings")
    found = read_spec(card["task"], where=where)
    if found.problem != spec.problem or found.layout.scores != spec.layout.scores or (same_size and found != spec):
        raise InputError(f"is of another task: {found} instead of {spec}", where=where, hint="train for this task from the beginning")


class Folder:
    """The checkpoints of one seed: `checkpoints/iteration-N.safetensors`, the last `keep` of them, and the best model on VAL."""

    def __init__(self, home: Path, keep: int) -> None:
        self.home, self._keep = home, keep
        self._checkpoints = home / "checkpoints"
        self._checkpoints.mkdir(parents=True, exist_ok=True)

    @property
    def best(self) -> Path:
        return self.home / BEST

    def last(self) -> Path | None:
        return max(self._checkpoints.glob(CHECKPOINTS), default=None)

    def write(self, state: State, card: dict[str, Any], iteration: int) -> None:
        write_file(self._checkpoints / f"iteration-{iteration:08d}{SUFFIX}", state.tensors, card | {"facts": state.facts})
        for old in sorted(self._checkpoints.glob(CHECKPOINTS))[: -self._keep]:
            old.unlink()

    def write_best(self, learner: Learner, card: dict[str, Any]) -> None:
        write_model(self.best, learner, card)


def write_model(path: Path, learner: Learner, card: dict[str, Any]) -> None:
    """The model, and the card as JSON beside it for people to read; programs read the one inside."""
    tensors = {f"network.{name}": tensor.detach() for name, tensor in learner.network.state_dict().items()}
    write_file(path, tensors | learner.scaling.tensors(), card)
    write_text(path.with_suffix(".json"), json.dumps(card, indent=2) + "\n")


def read_state(path: Path) -> tuple[State, dict[str, Any]]:
    tensors, card = read_file(path)
    if "facts" not in card:
        raise InputError("is a model, not a checkpoint: it cannot be resumed", where=str(path), hint="use --init-from to start from it")
    return State(tensors, card["facts"]), card
