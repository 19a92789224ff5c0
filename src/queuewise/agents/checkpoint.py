"""Checkpoints and models: one safetensors file each, with a card (JSON) in its header.

A *checkpoint* holds everything a learner needs to continue bit for bit. A *model* holds what is needed to decide: the
weights of the network and the scaling of its observations. Both carry the same card; docs/training.md lists its fields.
Files are written under a temporary name and renamed, so a file that exists is complete.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from queuewise import __version__
from queuewise.agents.learner import DECISIONS, Learner, LearnerState, load_module
from queuewise.agents.network import Network
from queuewise.agents.observation_scaling import Scaling, read_scaling
from queuewise.agents.task_shape import TaskShape, read_shape
from queuewise.agents.train_settings import TrainSettings, renamed
from queuewise.agents.values import action_scores
from queuewise.config import validate
from queuewise.errors import InputError
from queuewise.policies.learned import layers_of
from queuewise.policies.model_file import BEST, CHECKPOINTS, DIGEST, FORMAT, KEY, SUFFIX, check_arrays, damaged, digests, read_card
from queuewise.policies.networks import list_layers
from queuewise.policies.networks.layers import Layers
from queuewise.runs import create_folder, replacing, write_text


def make_card(settings: TrainSettings, shape: TaskShape, seed: int, **facts: Any) -> dict[str, Any]:
    """The card of a file: everything needed to use its contents."""
    return {
        "format": FORMAT,
        "queuewise": __version__,
        "git": _revision(),
        "algo": settings.algo,
        "network": {"name": settings.net, **settings.network.model_dump()},
        "layers": [layer.as_json() for layer in _layers(settings, shape)],
        "task": shape.as_json(),
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
        **facts,
    }


def _layers(settings: TrainSettings, shape: TaskShape) -> Layers:
    return list_layers(settings.net, shape.problem, shape.layout, settings.network, settings.outputs)


def _revision() -> str | None:
    """The git revision of the sources, if they are in a repository."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def write_file(path: Path, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
    """Write tensors and a card that has its digests."""
    with replacing(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {KEY: json.dumps(card)})


def with_digests(card: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The card as JSON gives it back, with the digests of itself and of the tensors."""
    plain = json.loads(json.dumps(card))
    return {**plain, DIGEST: digests(_arrays(tensors), plain)}


def _arrays(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and card; raise an InputError that says what is wrong with the file."""
    card = read_card(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, KeyError) as error:
        raise damaged(path, error) from None
    check_arrays(_arrays(tensors), card, path, ("model", "state"))
    return tensors, card


def check_card(card: dict[str, Any], settings: TrainSettings, shape: TaskShape, *, where: str, same_size: bool) -> None:
    """Refuse a file made for another task or network.

    Without `same_size`, the numbers of slots and hosts may differ.
    """
    wanted = {"name": settings.net, **settings.network.model_dump()}
    theirs = {"layers": None, **card["network"]}  # earlier versions had no lists of layers
    if theirs != wanted:
        differing = ", ".join(f"{key} {theirs.get(key)} instead of {wanted.get(key)}" for key in wanted if theirs.get(key) != wanted[key])
        raise InputError(f"holds another network: {differing}", where=where, hint="use the same --net and --network settings")
    found = read_shape(card["task"], where=where)
    if _kind_of_task(found) != _kind_of_task(shape) or (same_size and found != shape):
        raise InputError(f"was made for another task: {found} instead of {shape}", where=where, hint="train a new model for this task")


def _kind_of_task(shape: TaskShape) -> tuple[Any, ...]:
    """What must be equal for the weights to fit."""
    layout = shape.layout
    return shape.problem, layout.scores, layout.view, layout.stops > 0, layout.moves


class CheckpointFolder:
    """The files of one seed: its last `keep` checkpoints (`checkpoints/iteration-N`) and its best model on VAL."""

    def __init__(self, home: Path, keep: int) -> None:
        self.home, self._keep = home, keep
        self._checkpoints = home / "checkpoints"
        create_folder(self._checkpoints)

    @property
    def best(self) -> Path:
        return self.home / BEST

    def last(self) -> Path | None:
        return max(self._checkpoints.glob(CHECKPOINTS), default=None)

    def write(self, state: LearnerState, card: dict[str, Any], iteration: int) -> None:
        write_file(
            self._checkpoints / f"iteration-{iteration:08d}{SUFFIX}",
            state.tensors,
            with_digests(card | {"facts": state.facts}, state.tensors),
        )
        for old in sorted(self._checkpoints.glob(CHECKPOINTS))[: -self._keep]:
            old.unlink()

    def write_best(self, learner: Learner, card: dict[str, Any]) -> None:
        write_model(self.best, learner, card)


def write_model(path: Path, learner: Learner, card: dict[str, Any]) -> None:
    """Write the model, and beside it the card as JSON for people to read; programs read the card inside."""
    tensors = {f"network.{name}": tensor.detach() for name, tensor in learner.network.state_dict().items()}
    tensors |= learner.scaling.tensors()
    card = with_digests(card, tensors)
    write_file(path, tensors, card)
    write_text(path.with_suffix(".json"), json.dumps(card, indent=2) + "\n")


def read_state(path: Path) -> tuple[LearnerState, dict[str, Any]]:
    tensors, card = read_file(path)
    if "facts" not in card:
        raise InputError("is a model, not a checkpoint, and cannot be resumed", where=str(path), hint="use --init-from to start from it")
    return LearnerState(tensors, card["facts"]), card


# --- models read back


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model read back from its file."""

    network: Network
    scaling: Scaling
    card: dict[str, Any]

    @property
    def decision(self) -> str:
        decision: str = self.card["decision"]
        return decision

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        """[B, F] scaled observations, [B, A] mask -> [B] flat actions."""
        with torch.inference_mode():
            return DECISIONS[self.decision](action_scores(self.network, observations, mask))


def load_model(path: Path, shape: TaskShape) -> TrainedModel:
    """Load a model for a task of this shape.

    Except for the `mlp`, the numbers of slots and hosts may differ from training.
    """
    tensors, card = read_file(path)
    settings = validate(TrainSettings, renamed(card["settings"]), source=str(path))
    check_card(card, settings, shape, where=str(path), same_size=settings.net == "mlp")
    network = Network(shape, layers_of(card, tensors, shape.problem, shape.layout, where=str(path)))
    load_weights(network, tensors, path)
    return TrainedModel(network.eval(), read_scaling(tensors), card)


def load_weights(network: Network, tensors: dict[str, Tensor], path: Path) -> None:
    """Load `network.*`; weights of other names or shapes are refused."""
    try:
        load_module(network, tensors, "network")
    except RuntimeError as error:
        raise damaged(path, str(error).splitlines()[-1].strip()) from None
