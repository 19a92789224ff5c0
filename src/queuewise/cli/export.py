"""`queuewise export`: write a trained network as an ONNX file."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Export:
    """Write a trained network as an ONNX file: observations and a mask in, scores of actions and a value out."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder or model that queuewise train wrote."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The file to write, e.g. policy.onnx."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: file, model, network, problem, observation_size, num_actions, opset, bytes."""

    def run(self) -> None:
        from queuewise.agents.onnx_export import export_model
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.policies.model_file import find_model

        if not self.out.parent.is_dir():
            raise InputError("there is no such folder", where=str(self.out.parent), hint="make it first, or give another --out")
        facts = export_model(find_model(self.run_folder), self.out)
        if self.json:
            print(json_text.dumps(facts))
        else:
            sizes = f"{facts['observation_size']} numbers in, {facts['num_actions']} actions out"
            print(f"{facts['network']} for the {facts['problem']} problem: {sizes}")
        note(f"written to {self.out}")
