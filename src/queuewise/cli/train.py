"""`queuewise train`: train a policy for a workload on a cluster, and evaluate it on windows it has not seen."""

from __future__ import annotations

import json as json_text
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from queuewise.agents.train_settings import TrainSettings, layered
from queuewise.cli.inputs import read_conditions

if TYPE_CHECKING:
    from queuewise.agents.training import TrainOutcome


@dataclass(frozen=True)
class Train:
    """Train a policy. The best model on VAL is kept and compared with heuristics on REPORT, with confidence intervals."""

    settings: Annotated[TrainSettings, tyro.conf.arg(name="")]
    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Settings to start from: baseline_stable, d3qn, lsf, quick, rltune, sac, … Flags override them. See queuewise/agents/presets."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A TOML file with settings: a copy of a preset, or the config.toml of another run."""
    seeds: Annotated[str, tyro.conf.arg(metavar="S,T,…")] = "0"
    """Train once per seed; the best model on VAL is kept."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Run folder to write. Default: runs/ALGO-NET-WORKLOAD-N."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue the run in this folder with its settings; flags override them. The weights are the same as without the interruption."""
    conditions: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with outages, failures, quotas, node sleep or a power cap (see docs/conditions.md), for all windows. The run keeps
    its contents."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="DIR|FILE")] = None
    """Start with the weights of this run or model."""
    show_config: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the resolved settings as TOML (reward terms, baseline, score, backfill, placement, windows, cluster) and end."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object at the end: run, algo, frames, frames_per_s, steady_frames_per_s, imitation_s, val_s, val, report."""

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Train:
        """Presets, files and earlier runs are the defaults for the flags, so they are read first."""
        early = {name: _value_of(f"--{name}", arguments) for name in ("preset", "config", "resume")}
        seeds = "0"
        if early["resume"]:
            from queuewise.agents.recording import read_run_config

            data, known = read_run_config(Path(early["resume"]))
            settings, seeds = layered(**data), ",".join(map(str, known))
        else:
            settings = layered(early["preset"], Path(early["config"]) if early["config"] else None)
        return tyro.cli(cls, prog=prog, args=arguments, default=cls(settings, seeds=seeds))

    def run(self) -> None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # before torch is imported: its GPU threads do not survive a fork
        from queuewise.cli.console import announce_compilation, note
        from queuewise.errors import optional_imports

        if not self.show_config:
            note("loading PyTorch …")  # seconds, in which nothing else would be seen
        with optional_imports():
            from queuewise.agents.display import Display
            from queuewise.agents.training import train

        settings = self.settings
        if self.conditions is not None:
            workload = settings.reading.load(settings.workload, None, 0).workload  # for the dates of its clock
            settings = settings.model_copy(update={"conditions": read_conditions(self.conditions, workload, settings.reading.load_factor)})
        if self.show_config:
            from queuewise.agents.resolved import resolve
            from queuewise.agents.scenario import load_scenario
            from queuewise.config import to_toml

            print(to_toml({**resolve(load_scenario(settings, note)), "settings": settings.model_dump(mode="json")}), end="")
            return
        run = self.resume or self.out or _new_folder(settings)
        announce_compilation(playing=True)
        try:
            with Display(settings) as display:
                outcome = train(settings, self._seeds(), run, display, resume=self.resume is not None, init_from=self.init_from)
        except KeyboardInterrupt:
            note(f"what is done is kept; continue with queuewise train --resume {run}")
            raise
        note(f"written to {run}")
        note(_describe_time(outcome))
        if self.json:
            print(json_text.dumps(outcome.as_json(), allow_nan=False))
        else:
            _print(outcome)

    def _seeds(self) -> list[int]:
        from queuewise.errors import InputError

        try:
            seeds = [int(part) for part in self.seeds.split(",")]
        except ValueError:
            raise InputError(f"--seeds {self.seeds!r} is not a list of numbers", hint="for example --seeds 0,1,2") from None
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InputError(f"--seeds {self.seeds} contains a negative or repeated number", hint="for example --seeds 0,1,2")
        return seeds


def _value_of(flag: str, arguments: Sequence[str]) -> Any:
    """The value of a flag, written as `--flag value` or `--flag=value`."""
    for number, argument in enumerate(arguments):
        if argument == flag and number + 1 < len(arguments):
            return arguments[number + 1]
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None


def _new_folder(settings: TrainSettings) -> Path:
    stem = f"{settings.algo}-{settings.net}-{Path(settings.workload).stem}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def _describe_time(outcome: TrainOutcome) -> str:
    spent = outcome.time
    imitation = f"imitation took {spent.imitation_s:.1f} s, " if spent.imitation_s else ""
    return f"{imitation}VAL {spent.val_s:.1f} s; without them {spent.steady_rate(outcome.frames):,.0f} frames/s"


def _print(outcome: TrainOutcome) -> None:
    from queuewise.cli.evaluate import print_result

    settings = outcome.settings
    print_result(
        outcome.result, f"{settings.workload}: REPORT, {settings.report_windows} windows of {settings.episode_jobs} jobs; {outcome.play}"
    )
