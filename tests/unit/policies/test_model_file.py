"""Model files: what was changed after it was written, or can decide nothing, is refused in one line that names the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model_setup import Arrays, Card, make_model, rewrite_model
from queuewise.agents.checkpoint import load_model
from queuewise.agents.model_policies import describe
from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.policies.model_file import DIGEST, digests, read_model
from queuewise.workload.models import generate


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make_model(tmp_path / "run", "kernel")
    return tmp_path / "run" / "best.safetensors"


def refusal(path: Path) -> str:
    """What a replay says, in one line."""
    with pytest.raises(InputError) as refused:
        simulate(generate("bursty", 5, seed=2, max_gpus=4), load_cluster("2x4:V100-16"), f"model:{path}")
    assert refused.value.where.startswith(str(path))
    assert refused.value.hint
    assert "\n" not in str(refused.value)
    return refused.value.message


def test_the_digest_is_that_of_the_card_and_the_weights(model: Path) -> None:
    arrays, card = read_model(model)
    assert card[DIGEST] == digests(arrays, card)
    assert json.loads(model.with_suffix(".json").read_text())[DIGEST] == card[DIGEST]
    first = next(iter(arrays))
    assert digests({**arrays, first: arrays[first] + 1}, card)["model"] != card[DIGEST]["model"]
    assert digests({**arrays, "other": arrays[first]}, card)["model"] == card[DIGEST]["model"]
    assert digests(arrays, card | {"seed": 77})["model"] != card[DIGEST]["model"]


def test_any_flipped_bit_is_noticed(model: Path) -> None:
    """In the weights, in the card, and in the header around it."""
    whole = model.read_bytes()
    for place in np.linspace(8, len(whole) - 1, 60).astype(int).tolist():
        model.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError) as refused:
            read_model(model)
        assert refused.value.where.startswith(str(model))
        assert "\n" not in str(refused.value)


def test_weights_that_are_not_finite_are_refused(model: Path) -> None:
    def spoil(arrays: Arrays, card: Card) -> None:
        name = next(name for name in arrays if name.startswith("network."))
        arrays[name] = np.full_like(arrays[name], np.nan)

    rewrite_model(model, spoil)
    assert "are not all finite" in refusal(model)
    with pytest.raises(InputError, match="are not all finite"):
        load_model(model, None)  # type: ignore[arg-type]  # refused before the shape matters


@pytest.mark.parametrize("number", [99, 0, "1", None])
def test_other_formats_are_refused(model: Path, number: object) -> None:
    rewrite_model(model, lambda arrays, card: card.update(format=number))
    assert refusal(model) == f"has format {number}; this version reads 1"


def test_weights_and_scaling_of_another_shape_are_refused(model: Path) -> None:
    whole = model.read_bytes()

    def cut(prefix: str) -> Callable[[Arrays, Card], None]:
        def change(arrays: Arrays, card: Card) -> None:
            name = next(name for name in sorted(arrays) if name.startswith(prefix))
            arrays[name] = np.ascontiguousarray(arrays[name][:-1])

        return change

    rewrite_model(model, cut("network."))
    assert "have shape" in refusal(model)
    model.write_bytes(whole)
    rewrite_model(model, cut("scaling.jobs.mean"))
    assert "the mean of 'jobs' has shape" in refusal(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", 3), ("task", {}), ("settings", []), ("network", {}), ("network", "kernel"), ("algo", 5), ("seed", "x"), ("layers", 7)],
)
def test_a_damaged_card_names_the_field(model: Path, field: str, value: object) -> None:
    rewrite_model(model, lambda arrays, card: card.update({field: value}), digest=False)
    with pytest.raises(InputError) as refused:
        describe(f"model:{model}")
    assert field in f"{refused.value.where} {refused.value.message}"
    assert refused.value.where.startswith(str(model))


def test_a_file_of_an_earlier_version_is_read_with_a_note(model: Path) -> None:
    assert "no digest" not in describe(f"model:{model}")
    rewrite_model(model, lambda arrays, card: None, digest=False)
    assert "has no digest, so damage may go unnoticed" in describe(f"model:{model}")


def test_a_model_can_be_pinned(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--workload", "bursty", "--jobs", "5", "--cluster", "2x4:V100-16", "--policy", f"model:{model.parent}"]
    right = hashlib.sha256(model.read_bytes()).hexdigest()
    assert main([*command, "--model-sha256", right.upper()]) == 0
    capsys.readouterr()
    assert main([*command, "--model-sha256", "0" * 64]) == 2
    assert capsys.readouterr().err.startswith(f"error: {model}: has SHA-256 {right}, which --model-sha256 does not list\nhint: ")
    assert main([*command[:-1], "fcfs", "--model-sha256", right]) == 2
    assert "no policy is a model" in capsys.readouterr().err
