"""The headline experiments of the published systems, each by one command, with three training seeds.

    python benchmarks/published.py PART…     # rules, power, gpu_optimizer, drl, lsf, rltune; what is finished is not done again

Each training writes benchmarks/results/published/NAME.json: scores of the model and of the rules on the same REPORT windows.
render_published.py makes the tables of docs/results.md of them. Runs stay in --runs and go on where they were interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queuewise.agents.checkpoint import load_model
from queuewise.agents.display import Display
from queuewise.agents.recording import CONFIG
from queuewise.agents.scenario import load_scenario
from queuewise.agents.task_play import heuristic_cells
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings, layered
from queuewise.agents.training import train
from queuewise.agents.validation import Validator, acting, evaluate_policy
from queuewise.cli.console import note
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.errors import InputError
from queuewise.evaluation.energy import energy_kwh
from queuewise.evaluation.judging import judge
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import makespan
from queuewise.evaluation.scores import parse_score
from queuewise.policies import simulate
from queuewise.policies.ordering import ORDERS
from queuewise.runs import LAST_FILE, write_text
from queuewise.workload.models import generate

HERE = Path(__file__).resolve().parent
SEEDS = (0, 1, 2)
NETWORKS, LOOKAHEADS = ("mlp", "attn"), ("off", "per_gpu", "sorted", "cdf")
BY_MEMORY = f"fcfs@{HERE.parent / 'examples/policies/placements.py'}:by_memory"
REPORT_SEED = 17  # used for nothing else


@dataclass(frozen=True)
class Training:
    """One network to train, and where it is judged."""

    name: str  # without the seed
    settings: TrainSettings
    larger: dict[str, Any] | None = None  # changes of the settings for a second REPORT, without further training
    judged_by: str = ""  # a score; empty: what it is trained for
    first: str = ""  # name of the training whose weights it begins with
    facts: dict[str, Any] = field(default_factory=dict)


def gpu_optimizer(traces: Path) -> Iterator[Training]:
    for net in NETWORKS:
        for lookahead in LOOKAHEADS:
            task = {"preset": "gpu-optimizer", "lookahead": lookahead}
            settings = layered(
                "baseline_stable", net=net, task=task, report_windows=60, report_seed=REPORT_SEED, logs=(), ppo={"workers": 1}
            )
            yield Training(f"gpu_optimizer-{net}-{lookahead}", settings, facts={"net": net, "lookahead": lookahead})


def drl(traces: Path) -> Iterator[Training]:
    rules = ("fcfs", "priority", "sjf", "fcfs+greedy", "sjf+greedy")
    logs = {"hetero56": "hetero"} | {name: str(traces / "drl" / f"{name}_workload.csv.gz") for name in ("low", "medium", "heavy")}
    for log, workload in logs.items():
        windows = (4, 7) if log == "heavy" else (10, 20)  # as many as its VAL and REPORT jobs allow without overlapping
        for algo in ("d3qn", "sac", "ppo"):
            sizes: dict[str, Any] = {"frames": 98_304, "val_windows": windows[0], "report_windows": windows[1], "logs": ()}
            sizes |= {"ppo": {"workers": 1, "minibatch": 512, "learning_rate": 1e-3}} if algo == "ppo" else {}
            settings = layered(
                "drl-ppo" if algo == "ppo" else f"drl-{algo}", workload=workload, cluster="hetero56", score="return", baselines=rules,
                report_seed=0 if log != "hetero56" else REPORT_SEED, **sizes,
            )  # fmt: skip
            yield Training(f"drl-{log}-{algo}", settings, judged_by="jct", facts={"log": log, "algo": algo})


def lsf(traces: Path) -> Iterator[Training]:
    common: dict[str, Any] = {"logs": (), "report_seed": REPORT_SEED, "report_windows": 40}
    ppo = {"workers": 1}
    ten = layered(file=HERE / "learning" / "hosts10.toml", **common | {"ppo": ppo, "cluster": str(HERE / "learning" / "farm10.toml")})
    rules = ("fcfs@first", "fcfs@pack", "fcfs@spread", "fcfs@random", BY_MEMORY)
    fifty = layered(file=HERE / "learning" / "hosts.toml", **common | {"ppo": ppo, "baselines": rules})
    yield Training("lsf-10", ten.model_copy(update={"baselines": rules}))
    larger = {"cluster": "farm500", "episode_jobs": 10_000, "report_windows": 10, "val_windows": 2}
    yield Training("lsf-50", fifty, larger=larger, first="lsf-10")


def rltune(traces: Path) -> Iterator[Training]:
    logs = {
        "philly": (str(traces / "philly" / "philly_jobs_2017-09_to_10.csv.gz"), "rltune-philly"),
        "venus": (str(traces / "helios" / "venus_gpu_jobs_2020-03-18_to_07-31.csv.gz"), "rltune-helios"),
    }
    for log, (workload, cluster) in logs.items():
        for score in ("util", "wait", "jct"):
            settings = layered(
                "rltune", workload=workload, cluster=cluster, score=score, baselines=("fcfs", "sjf", "wfp3", "random"), frames=409_600,
                eval_actions="sampled", report_windows=10, val_windows=10, logs=(), eval_every=10,
                ppo={"num_envs": 16, "minibatch": 4096, "workers": 1},
            )  # fmt: skip
            yield Training(f"rltune-{log}-{score}", settings, facts={"log": log, "score": score})


GPU_RULES = ("fcfs+greedy", "sjf+greedy", "random", "largest+greedy", "laf+greedy", "smallest+greedy", "priority+greedy")


def rules(results: Path) -> None:
    """Returns of gpu-optimizer's heuristics, and of others, in its task: 60 VAL and 60 REPORT windows."""
    settings = layered("baseline_stable", report_seed=REPORT_SEED)
    scenario = load_scenario(settings)
    rows = {}
    for block in ("val", "report"):
        cells = heuristic_cells(scenario, scenario.experiment(block), GPU_RULES)
        rows[block] = {rule: [round(float(c.scores["return"] or 0.0), 6) for c in cells if c.policy == rule] for rule in GPU_RULES}
    _write(results / "rules.json", {"report_seed": REPORT_SEED, **rows})


def power(results: Path) -> None:
    """Energy and makespan of power@cheapest beside all orders and backfills: busy, and nearly idle with nodes that sleep."""
    sleeping = Conditions.model_validate({"power": {"sleep_after_s": 600.0, "wake_s": 60.0, "sleep_watts": 10.0}})
    names = ["power@cheapest", "fcfs", "sjf+greedy@fastest", *(f"{o}+{b}" for o in ORDERS for b in ("none", "greedy", "easy"))]
    cluster, found = load_cluster("hetero56"), {}
    for case, load, conditions in (("busy", 0.8, PERFECT), ("sleeping", 0.2, sleeping)):
        jobs = generate("hetero", 2000, 0, load=load)
        measured = {name: measure(simulate(jobs, cluster, name, estimates="oracle", conditions=conditions)) for name in names}
        found[case] = {
            name: {"kwh": round(energy_kwh(m) or 0.0, 3), "makespan_s": round(makespan(m) or 0.0, 1)} for name, m in measured.items()
        }
    _write(results / "power.json", {"jobs": 2000, **found})


def _write(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(row, indent=1) + "\n")


WITHOUT_TRAINING: dict[str, Callable[[Path], None]] = {"rules": rules, "power": power}
PARTS: dict[str, Callable[[Path], Iterator[Training]]] = {"gpu_optimizer": gpu_optimizer, "lsf": lsf, "rltune": rltune, "drl": drl}


def judged(settings: TrainSettings, run: Path, by: str = "") -> dict[str, list[float]]:
    """[windows] scores on REPORT by policy: the model, and the rules as they play in the task."""
    scenario, score = load_scenario(settings), parse_score(by or settings.objective)
    experiment = scenario.experiment("report")
    validator = Validator(scenario, score)
    model = load_model(run / "best.safetensors", TaskShape(settings.env, scenario.setup.layout))
    cells = evaluate_policy(acting(model, settings.eval_actions), model.scaling, scenario, experiment, "model")
    result = judge([*cells, *validator.baseline_cells(experiment, validator.baselines)], score)
    return {_short(policy): [round(float(value), 6) for value in values] for policy, values in result.per_window.items()}


def _short(policy: str) -> str:
    return policy.replace(f"{HERE.parent}/", "")


def finish(one: Training, seed: int, runs: Path, results: Path) -> None:
    """Train one seed, judge it, and write the figures; nothing to do if they are there."""
    target, run = results / f"{one.name}-{seed}.json", runs / f"{one.name}-{seed}"
    if target.exists():
        return
    began, s = time.time(), one.settings
    row = {
        "name": one.name, "seed": seed, **one.facts, "score": one.judged_by or s.objective, "trained_for": s.objective, "algo": s.algo,
        "net": s.net, "frames": s.frames, "episode_jobs": s.episode_jobs, "report_seed": s.report_seed,
    }  # fmt: skip
    try:
        _train(one, seed, run, runs)
    except InputError as error:  # such as: all rules tie, because nobody waits for anything
        note(f"{target.stem}: {error}")
        _write(target, row | {"refused": str(error)})
        return
    row |= {"seconds": round(time.time() - began, 1), "per_window": judged(s, run, one.judged_by)}
    if one.larger is not None:
        row["larger"] = {"cluster": one.larger["cluster"], "per_window": judged(s.model_copy(update=one.larger), run, one.judged_by)}
    _write(target, row)


def _train(one: Training, seed: int, run: Path, runs: Path) -> None:
    if (run / LAST_FILE).exists():
        return
    with Display(one.settings) as display:
        display.note(f"{one.name}, seed {seed}: {one.settings.frames:,} frames")
        first = runs / f"{one.first}-{seed}" if one.first else None
        train(one.settings, [seed], run, display, resume=(run / CONFIG).exists(), init_from=first)


def main() -> None:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*WITHOUT_TRAINING, *PARTS])
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/published"))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "published")
    parser.add_argument("--traces", type=Path, default=HERE.parent.parent / "shared" / "traces")
    options = parser.parse_args()
    for part in options.parts:
        if part in WITHOUT_TRAINING:
            WITHOUT_TRAINING[part](options.results)
            continue
        for seed in options.seeds:  # all trainings with one seed before the next
            for one in PARTS[part](options.traces):
                finish(one, seed, options.runs, options.results)


if __name__ == "__main__":
    main()
