"""`queuewise export`: write a trained network as an ONNX file, or a found rule as a readable function."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Export:
    """Write a trained network as an ONNX file, or a rule that was found as a function in Python or Lua.

    The inputs of a network are observations and a mask; its outputs are action scores and a value.
    """

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder or model written by queuewise train, or the run folder of queuewise learn."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write: policy.onnx, or of a rule, rule.py or rule.lua."""
    model_sha256: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HEX")] = ()
    """Refuse a model whose file has another SHA-256 than these, as sha256sum prints it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: file, model, network, problem, observation_size, num_actions, opset, bytes."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.policies.found_rules import read_rule, rule_file
        from queuewise.policies.model_file import check_pinned, find_model
        from queuewise.policies.rule_export import export_rule
        from queuewise.runs import write_text

        if not self.out.parent.is_dir():
            raise InputError("no such folder", where=str(self.out.parent), hint="create it or choose another --out")
        rule = rule_file(self.run_folder)
        if rule is not None:
            if self.model_sha256:
                check_pinned(rule, self.model_sha256)
            found = read_rule(rule)
            write_text(self.out, export_rule(found, self.out))
            print(json_text.dumps({"file": str(self.out), "formula": found.formula}) if self.json else found.formula)
            note(f"written to {self.out}")
            return
        from queuewise.agents.onnx_export import export_model

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
