"""`queuewise diagnose`: inspect a trained network."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from queuewise.agents.diagnosis import Diagnosis

CHOICES = ("slots", "hosts", "stops", "moves")
SHOWN = 8  # slots, hosts or running jobs of the histogram shown in the table


@dataclass(frozen=True)
class Diagnose:
    """Run a trained network on training episodes and report anything unusual about its values, actions, units and gradients."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, model or checkpoint written by queuewise train."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 8
    """Number of episodes."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed for the episodes and the sampled actions."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse a model whose file has another SHA-256 than these, as sha256sum prints it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: an object with value, advantage, actions, masks, units, gradient, training and verdict."""

    def run(self) -> None:
        from queuewise.cli.console import announce_compilation
        from queuewise.errors import InputError, optional_imports
        from queuewise.policies.model_file import check_pinned, find_model

        if self.episodes < 1 or self.seed < 0:
            raise InputError("--episodes must be at least 1, and --seed at least 0", hint="for example --episodes 8 --seed 0")
        path = find_model(self.run_folder)
        if self.model_sha256:
            check_pinned(path, self.model_sha256)
        with optional_imports():
            from queuewise.agents.diagnosis import diagnose
        announce_compilation(playing=True)
        found = diagnose(path, episodes=self.episodes, seed=self.seed)
        if self.json:
            print(json_text.dumps(found.as_json(), indent=2, allow_nan=False))
        else:
            _print(found)


def _print(found: Diagnosis) -> None:
    from queuewise.cli.console import print_table
    from queuewise.report.readable import figure

    value, actions, masks, units, gradient = found.value, found.actions, found.masks, found.units, found.gradient
    rows = [
        ["explained variance of returns", figure(value["explained_variance"], 3)],
        ["advantage of likely actions", figure(found.advantage["of_likely_actions"], 3)],
        ["advantage of unlikely actions", figure(found.advantage["of_unlikely_actions"], 3)],
        ["entropy ÷ maximum entropy", figure(actions["entropy_share"], 3)],
        ["waits although a job could start", f"{actions['waits']:.1%}"],
        *([f"{what} taken, first {SHOWN}", _shares(actions[what])] for what in CHOICES if actions[what] is not None),
        ["legal actions, mean and maximum", f"{masks['legal_mean']:.1f}, {masks['legal_most']}"],
        ["steps with one legal action", f"{masks['forced_share']:.1%}"],
        ["dead units", f"{units['dead']} of {units['total']}"],
        ["gradient norm", figure(gradient["norm"], 4)],
        ["  by part", ", ".join(f"{part} {norm:.3g}" for part, norm in gradient["parts"].items())],
        *([f"training: {name}", f"{last:g}"] for name, last in found.training.items()),
    ]
    print_table(["", ""], rows, title=f"{found.model}: {found.frames:,} frames of {found.episodes} episodes")
    for sentence in found.verdict:
        print(f"- {sentence}")


def _shares(counts: list[int]) -> str:
    return " ".join(f"{count / max(sum(counts), 1):.0%}" for count in counts[:SHOWN]) + (" …" if len(counts) > SHOWN else "")
