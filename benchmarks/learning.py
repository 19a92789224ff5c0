"""What learning reaches: train with the settings in benchmarks/learning/*.toml, judge on windows that nothing was chosen by.

    python benchmarks/learning.py PART…          # bursty, hosts, hetero, ablation, preemption; an interrupted part goes on where it was

Each part becomes benchmarks/results/learning/PART.json; render_results.py makes docs/results.md of them. `queuewise train --config FILE`
trains the same. Runs stay in --runs, and what is finished there is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch

from queuewise.agents.checkpoint import TrainedModel, load_model
from queuewise.agents.display import Display
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.recording import CONFIG, read_rows
from queuewise.agents.scenario import Scenario, load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings, layered
from queuewise.agents.training import train
from queuewise.agents.training_envs import TrainingEnvs
from queuewise.agents.validation import Validator, evaluate_policy
from queuewise.evaluation.judging import judge
from queuewise.evaluation.protocol import BLOCK_SEEDS
from queuewise.evaluation.scores import parse_score
from queuewise.policies.model_file import read_card
from queuewise.runs import LAST_FILE, write_text

HERE = Path(__file__).resolve().parent
NETWORKS, LOOKAHEADS = ("mlp", "attn"), ("off", "per_gpu", "sorted", "cdf")
Row = dict[str, Any]


def trained(
    runs: Path, name: str, seeds: Sequence[int], config: str, *, init_from: Path | None = None, **changes: Any
) -> tuple[TrainSettings, Path]:
    """A finished run, trained now unless it was before."""
    settings, run = layered(file=HERE / "learning" / f"{config}.toml", **changes), runs / name
    if not (run / LAST_FILE).exists():
        with Display(settings) as display:
            display.note(f"{name}: {settings.frames:,} frames, seeds {', '.join(map(str, seeds))}")
            train(settings, seeds, run, display, resume=(run / CONFIG).exists(), init_from=init_from)
    return settings, run


Chosen = Callable[[Path, int], Path]  # the file of a seed's model


def best_on_val(run: Path, seed: int) -> Path:
    return run / f"seed-{seed}" / "best.safetensors"


def at_the_end(run: Path, seed: int) -> Path:
    return max((run / f"seed-{seed}" / "checkpoints").glob("*.safetensors"))


def model_of(file: Path, scenario: Scenario) -> TrainedModel:
    return load_model(file, TaskShape(scenario.settings.env, scenario.setup.layout))


def judged(settings: TrainSettings, run: Path, seeds: Sequence[int], chosen: Chosen = best_on_val) -> Row:
    """A model of every seed on REPORT, beside the baselines: [windows] scores by policy."""
    scenario, score = load_scenario(settings), parse_score(settings.objective)
    experiment = scenario.experiment("report")
    validator = Validator(scenario, score)
    cells = validator.baseline_cells(experiment, validator.baselines)
    for seed in seeds:
        model = model_of(chosen(run, seed), scenario)
        cells += evaluate_policy(model.act, model.scaling, scenario, experiment, f"model:{seed}")
    result = judge(cells, score)
    facts = {
        "workload": settings.workload,
        "workload_args": settings.workload_args,
        "cluster": settings.cluster,
        "score": settings.objective,
    }
    sizes = {"algo": settings.algo, "net": settings.net, "frames": settings.frames, "jobs": settings.episode_jobs}
    per_window = {policy: [round(float(value), 6) for value in values] for policy, values in result.per_window.items()}
    return {**facts, **sizes, "seeds": list(seeds), "report_seed": settings.report_seed, "per_window": per_window}


def course(run: Path, seeds: Sequence[int]) -> Row:
    """How training went: seconds of every seed, and VAL over frames."""
    rows = {seed: [row for row in read_rows(run / f"seed-{seed}") if "val/agent" in row] for seed in seeds}
    cards = {seed: read_card(run / f"seed-{seed}" / "best.safetensors") for seed in seeds}
    summary = json.loads((run / LAST_FILE).read_text())
    return {
        "training_s": round(summary["frames"] / summary["frames_per_s"] / len(seeds), 1),
        "best_at_frames": {seed: card["frames"] for seed, card in cards.items()},
        "val": {seed: [[row["frames"], round(row["val/agent"], 6)] for row in kept] for seed, kept in rows.items()},
    }


def mean_returns(settings: TrainSettings, run: Path, seeds: Sequence[int], chosen: Chosen) -> dict[int, float]:
    """Mean reward of an episode on REPORT, in the task as it was trained."""
    scenario = load_scenario(settings)
    return {seed: _mean_return(model_of(chosen(run, seed), scenario), scenario) for seed in seeds}


def training_returns(run: Path, seeds: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Mean reward of an episode while exploring, in the first and in the last five iterations in which any ended."""
    met = {seed: [row["episode/return"] for row in read_rows(run / f"seed-{seed}") if "episode/return" in row] for seed in seeds}
    return {seed: (sum(values[:5]) / 5, sum(values[-5:]) / 5) for seed, values in met.items()}


@torch.inference_mode()
def _mean_return(model: TrainedModel, scenario: Scenario) -> float:
    """Environment e plays window e greedily; what it plays after that does not count."""
    windows, setup = scenario.experiment("report").plan.windows, scenario.task_setup("report")
    numbers = [(window.seed or 0) - BLOCK_SEEDS["report"].start for window in windows]
    order = chain(numbers, repeat(numbers[0]))
    envs = TrainingEnvs(setup, len(numbers), seed=0, draw=lambda rng: next(order))
    envs.scaler = Scaler(model.scaling, setup.layout)
    rows, mask = (
        torch.zeros(len(numbers), envs.shape.observation_size),
        torch.zeros(len(numbers), envs.shape.num_actions, dtype=torch.bool),
    )
    envs.write(rows, mask)
    returns: dict[int, float] = {}
    while len(returns) < len(numbers):
        step = envs.step(model.act(rows, mask), rows, mask)
        for e, tally in zip(step.ended.nonzero()[0], step.tallies, strict=True):
            returns.setdefault(int(e), tally["return"])
    envs.close()
    return sum(returns.values()) / len(returns)


def bursty(runs: Path) -> list[Row]:
    settings, run = trained(runs, "bursty", [0], "bursty")
    return [judged(settings, run, [0]) | course(run, [0])]


def hosts(runs: Path) -> list[Row]:
    """Trained on 10 and then on 50 hosts; on 500 as it is."""
    lesson, first = trained(runs, "hosts10", [0], "hosts10")
    settings, run = trained(runs, "hosts", [0], "hosts", init_from=first)
    larger = settings.model_copy(update={"cluster": "farm500", "episode_jobs": 10 * settings.episode_jobs, "report_windows": 10})
    before = {"lesson": {"cluster": lesson.cluster, "frames": lesson.frames} | course(first, [0])}
    return [judged(settings, run, [0]) | course(run, [0]) | before, judged(larger, run, [0])]


def hetero(runs: Path) -> list[Row]:
    rows, seeds = [], [0, 1, 2]
    for algo, frames in (("ppo", 98_304), ("d3qn", 65_536), ("sac", 49_152)):
        settings, run = trained(runs, f"hetero-{algo}", seeds, "hetero", algo=algo, frames=frames)
        rows.append(judged(settings, run, seeds) | course(run, seeds))
    return rows


def ablation(runs: Path) -> list[Row]:
    """Models are those at the end of training: the best on VAL would be the best by jct, which is not what this reward pays for."""
    rows, seeds = [], [0, 1, 2, 3, 4]
    for net in NETWORKS:
        for lookahead in LOOKAHEADS:
            task = {"preset": "gpu-optimizer", "lookahead": lookahead}
            settings, run = trained(runs, f"ablation-{net}-{lookahead}", seeds, "ablation", net=net, task=task)
            row = judged(settings, run, seeds, at_the_end) | course(run, seeds) | {"lookahead": lookahead}
            returns = {"returns": mean_returns(settings, run, seeds, at_the_end), "training_returns": training_returns(run, seeds)}
            rows.append(row | returns)
    return rows


def preemption(runs: Path) -> list[Row]:
    """The same network without and with slots for running jobs to preempt, and with migrations as well."""
    rows, seeds = [], [0, 1, 2]
    for net in ("kernel", "attn"):
        for name, offered in (("none", {}), ("stops", {"stops": 4}), ("moves", {"stops": 4, "moves": True})):
            settings, run = trained(runs, f"preemption-{net}-{name}", seeds, "preemption", net=net, task={"window": 16, **offered})
            rows.append(judged(settings, run, seeds) | course(run, seeds) | {"offered": name})
    return rows


PARTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "bursty": bursty,
    "hosts": hosts,
    "hetero": hetero,
    "ablation": ablation,
    "preemption": preemption,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--runs", type=Path, default=Path("runs") / "learning")
    options = parser.parse_args(arguments)
    for part in options.parts:
        rows = PARTS[part](options.runs)
        machine = {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)}
        write_text(HERE / "results" / "learning" / f"{part}.json", json.dumps({"machine": machine, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
