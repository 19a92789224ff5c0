"""`queuewise export`: write a trained network as an ONNX file."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Export:
    """Write a trained network as an ONNX file. Its inputs are observations and a mask; its outputs are action scores and a value."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder or model written by queuewise train."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write, e.g. policy.onnx."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse a model whose file has another SHA-256 than these, as sha256sum prints it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: file, model, network, problem, observation_size, num_actions, opset, bytes."""

    def run(self) -> None:
        from queuewise.agents.onnx_export import export_model
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.policies.model_file import check_pinned, find_model

        if not self.out.parent.is_dir():
            raise InputError("no such folder", where=str(self.out.parent), hint="create it or choose another --out")
        model = find_model(self.run_folder)
        if self.model_sha256:
            check_pinned(model, self.model_sha256)
        facts = export_model(model, self.out)
        if self.json:
            print(json_text.dumps(facts))
        else:
            sizes = f"{facts['observation_size']} inputs, {facts['num_actions']} actions"
            print(f"{facts['network']} for the {facts['problem']} problem: {sizes}")
        note(f"written to {self.out}")
