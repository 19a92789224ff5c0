"""How fast a trained network replays a log: a `kernel` network with a window of 64 jobs, on one core.

    python benchmarks/model.py HPC2N-2002-2.2-cln.swf.gz     trains a model first, minutes; writes benchmarks/results/model.json
    python benchmarks/model.py LOG --model RUN     a model that was trained before
    python benchmarks/model.py LOG --jobs 20000 --results DIR     fewer jobs, to try it out

`replay`: seconds of a whole call, and of the decisions in it. `agreement`: the interpreter against torch on states of the same replay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from queuewise.agents.checkpoint import TrainedModel, load_model
from queuewise.agents.model_policies import STEPS_AT_ONCE, load_policy
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.values import action_scores
from queuewise.cli import bench
from queuewise.cli.console import note
from queuewise.cluster.spec import Cluster
from queuewise.envs.batch import EnvBatch
from queuewise.envs.env_memory import make_template
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.stepping import RUNS_ON
from queuewise.policies import simulate
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.model_file import find_model
from queuewise.reading import Reading
from queuewise.runs import write_text
from queuewise.workload.estimates import default_estimates, estimate
from queuewise.workload.jobs import Workload

RESULTS = Path(__file__).resolve().parent / "results"
CLUSTER = "flat:240"
WINDOW = 64
COMPARED = 20_000  # decisions
TIE = 1e-5  # scores that differ by less are a tie
REPEATS = 3
FRAMES = 300_000  # of training


def train_model(log: Path, home: Path) -> Path:
    """Train a model for a minute or two: good enough to play as trained ones do."""
    settings = ["--net", "kernel", "--task.window", str(WINDOW), "--frames", str(FRAMES), "--val-windows", "4", "--report-windows", "2"]
    command = [sys.executable, "-m", "queuewise", "train", "--workload", str(log), "--cluster", CLUSTER, *settings]
    note(f"training for {FRAMES:,} frames …")
    subprocess.run([*command, "--baselines", "fcfs", "--out", str(home / "run")], check=True, capture_output=True)
    return home / "run"


def begun(model: Path, workload: Workload, cluster: Cluster) -> tuple[EnvBatch, TrainedNetwork]:
    """An env at the beginning of the replay, and the network."""
    setup, network = load_policy(model, workload, cluster)
    known = estimate(workload, setup.settings.estimates or default_estimates(workload), 0).values
    batch = setup.batch(1, threads=1)
    batch.begin([0], [make_template(lay_out_episode(workload, setup.cluster, setup.settings, setup.layout, known))])
    return batch, network


def measure_replay(model: Path, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    calls, plays = [], []
    simulate(workload.take(slice(0, 200)), cluster, f"model:{model}")  # compiles what there is to compile
    for _ in range(REPEATS):
        began = time.process_time()
        simulate(workload, cluster, f"model:{model}")
        calls.append(time.process_time() - began)
        batch, network = begun(model, workload, cluster)
        began = time.process_time()
        decisions = 0
        while batch.outcome[0] == RUNS_ON:
            decisions += batch.play(network, STEPS_AT_ONCE)
        plays.append(time.process_time() - began)
        batch.close()
    per_decision = 1e6 * min(plays) / decisions
    note(f"{len(workload):,} jobs, {decisions:,} decisions: {min(calls):.2f} s of the processor, {per_decision:.1f} µs per decision")
    return {"jobs": len(workload), "decisions": decisions, "call_s": min(calls), "play_s": min(plays), "decision_us": per_decision}


def measure_ordered(model: Path, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    """The network as the order of the queue, with EASY backfill."""
    simulate(workload.take(slice(0, 200)), cluster, f"model:{model}+easy")  # compiles what there is to compile
    calls = []
    for _ in range(REPEATS):
        began = time.process_time()
        simulate(workload, cluster, f"model:{model}+easy")
        calls.append(time.process_time() - began)
    note(f"{len(workload):,} jobs with +easy: {min(calls):.2f} s of the processor")
    return {"jobs": len(workload), "call_s": min(calls)}


def measure_agreement(model: Path, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    """The interpreter's actions and torch's, on states that the interpreter meets. Equal jobs count as one choice.

    `close` counts the decisions whose two best choices have almost equal scores, `close_but_unlike` those of them that are not between two
    jobs that differ in their wait alone.
    """
    batch, network = begun(model, workload, cluster)
    trained = load_model(model, TaskShape("job", batch.layout))
    scaler = Scaler(trained.scaling, batch.layout)
    close = close_but_unlike = differing = differing_clearly = compared = 0
    while batch.outcome[0] == RUNS_ON and compared < COMPARED:
        action = int(network.act(batch.observations, batch.mask)[0])
        differs, gap, unlike_gap = _compare(action, trained, scaler, batch)
        compared += 1
        close += gap <= TIE
        close_but_unlike += unlike_gap <= TIE
        differing += differs
        differing_clearly += differs and gap > TIE
        batch.step(np.array([action]))
    batch.close()
    note(f"{compared:,} decisions compared with torch: {differing} differ, {differing_clearly} of them clearly; {close} were close")
    counts = {"close": close, "close_but_unlike": close_but_unlike, "differing": differing, "differing_clearly": differing_clearly}
    return {"compared": compared, **counts}


def _compare(action: int, trained: TrainedModel, scaler: Scaler, batch: EnvBatch) -> tuple[bool, float, float]:
    """Whether torch chooses something else, and how much the score of what it chooses exceeds the next.

    The last number is the same without the jobs that differ from the best one in their wait alone.
    """
    rows, mask = scaler.apply(torch.from_numpy(batch.observations)), torch.from_numpy(batch.mask)
    with torch.inference_mode():
        scores = action_scores(trained.network, rows, mask)[0]
    jobs, wait = scores[:-1], len(scores) - 1
    best = int(jobs.argmax())
    shown = batch.layout.parts(batch.observations)["jobs"][0]
    differs = shown != shown[best]
    unlike = torch.from_numpy(differs.any(1))
    differs[:, batch.layout.job_features.index("wait")] = False
    unlike_but_for_wait = torch.from_numpy(differs.any(1))
    margin = float(scores[-1] - jobs.logsumexp(0))  # of the wait over all jobs together
    if margin > 0:
        return action != wait, margin, margin
    gap, unlike_gap = (
        min([-margin, *([float(jobs[best] - jobs[others].max())] if others.any() else [])]) for others in (unlike, unlike_but_for_wait)
    )
    return action == wait or bool(unlike[action]), gap, unlike_gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--jobs", type=int, default=None, help="only the first jobs of the log")
    parser.add_argument("--model", type=Path, default=None, help="a run of queuewise train; default: train one")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = bench.describe_machine()
    loaded, cluster = Reading().load_with_cluster(str(arguments.log), CLUSTER, None, 0, note)
    workload = loaded.workload if arguments.jobs is None else loaded.workload.take(slice(0, arguments.jobs))
    with tempfile.TemporaryDirectory() as folder:
        model = find_model(arguments.model or train_model(arguments.log, Path(folder)))
        found = {
            "machine": machine,
            "log": arguments.log.name,
            "cluster": CLUSTER,
            "window": WINDOW,
            "replay": measure_replay(model, workload, cluster),
            "ordered": measure_ordered(model, workload, cluster),
            "agreement": measure_agreement(model, workload, cluster),
        }
    write_text(arguments.results / "model.json", json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
