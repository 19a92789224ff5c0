"""Compare the speed of two versions of Queuewise in one run: python benchmarks/interleaved.py OTHER_CHECKOUT [--seconds 6]

On a shared machine figures of different minutes do not compare. So one process per version is open, and both are asked in turn to do the
same short piece of work, through the public interface only. Where memory happens to lie makes a process faster or slower by a few per
cent for all its life, so every case is measured in several sittings, each with new processes. A sitting gives the ratio of both best
rates (this version ÷ the other); the table shows the best rate of each version, and the median and quartiles of the ratios. The exit
code is 1 if a median is below --least. Both versions compile their engines first if their caches are cold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
CLUSTER = "250x8:V100-16"
REPLAYS = {  # policy: jobs
    "fcfs": 300_000, "sjf": 300_000, "fcfs+easy": 300_000, "wfp3+easy": 20_000, "srtf": 100_000, "las": 100_000, "las2d": 100_000,
    "tiresias": 100_000, "gittins": 100_000, "priority-preempt": 100_000, "defrag": 100_000, "fcfs+conservative": 10_000,
}  # fmt: skip
ENVS, STEPS = 128, 300
TRAIN_FRAMES = 65_536
TRAIN_BASELINES = ("fcfs", "fcfs+greedy", "sjf+greedy", "saf+greedy", "random")


def generator() -> Any:
    """What draws the same jobs in all versions: `generate` gives them users and priorities in later ones."""
    from queuewise.workload import models

    return getattr(models, "draw_jobs", models.generate)


def draw_the_same_jobs() -> None:
    """Let environments draw the same jobs in all versions; to be called once `queuewise.envs` is imported."""
    drawn_by: Any = sys.modules.get("queuewise.envs.windows") or sys.modules["queuewise.envs.episodes"]  # its name in earlier versions
    drawn_by.generate = generator()


def replay_case(policy: str, jobs: int) -> Callable[[], float]:
    """Jobs per second of one replay, by the engine's own clock."""
    import queuewise

    generate = generator()
    cluster, estimates = queuewise.load_cluster(CLUSTER), "requested"
    workload = generate("bench", jobs, gpus=2000, load=0.9)
    if policy == "fcfs+conservative":  # its plans are long: a small machine and exact estimates
        cluster, estimates = queuewise.load_cluster("flat:256"), "oracle"
        workload = generate("lublin", jobs // 4, 0)
    queuewise.simulate(workload.take(slice(0, 100)), cluster, policy, estimates=estimates)
    return lambda: len(workload) / queuewise.simulate(workload, cluster, policy, estimates=estimates).engine_s


def snapshot_case() -> Callable[[], float]:
    import queuewise
    from queuewise.policies.simulation import Simulation

    workload = generator()("bench", 5_000, gpus=2000, load=0.9)
    simulation = Simulation(workload, queuewise.load_cluster(CLUSTER), "fcfs+easy")
    simulation.run(float(workload.submit[2_500]))
    remember: Any = getattr(simulation, "remember", simulation.snapshot)  # its name in earlier versions

    def rate() -> float:
        began = time.perf_counter()
        for _ in range(200):
            simulation.restore(remember())
        return 200 / (time.perf_counter() - began)

    return rate


def env_case(threads: int, *, in_place: bool = False) -> Callable[[], float]:
    """Steps per second of a vector environment as it is by default, or with every step overwriting the observations of the last."""
    from queuewise import QueuewiseError
    from queuewise.envs import QueuewiseVectorEnv

    draw_the_same_jobs()

    def make(length: str) -> Any:
        sizes: dict[str, Any] = {"cluster": "16x8:V100-16", length: 256, "pool": 64, "model_args": {"load": 0.9}}
        made = QueuewiseVectorEnv(ENVS, "job", threads=threads, **sizes | ({"copy": False} if in_place else {}))
        if in_place and hasattr(made, "setup"):
            made.batch = made.setup.batch(ENVS, threads)  # of one buffer also in versions whose environments have two
        return made

    try:
        envs = make("episode_jobs")
    except QueuewiseError:
        envs = make("jobs")  # its name in earlier versions
    envs.reset(seed=0)
    envs.legal_actions(seed=1)
    for _ in range(2000):  # until every window has been laid out
        envs.step(envs.legal_actions())

    def rate() -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            envs.step(envs.legal_actions())
        return ENVS * STEPS / (time.perf_counter() - began)

    return rate


def ppo_case(net: str) -> Callable[[], float]:
    """Frames per second of PPO's iterations, by the benchmark of that version: the figures of docs/performance.md."""
    import queuewise

    sys.path.insert(0, str(Path(queuewise.__file__).parents[2] / "benchmarks"))
    from ppo import measure as measure_ppo

    draw_the_same_jobs()
    return lambda: float(measure_ppo(net, 256, 3)["frames_per_s"])


def train_case() -> Callable[[], float]:
    """Frames per second of whole short trainings, imports and evaluations included, with the same policies to compare with."""
    import tempfile

    def rate() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "queuewise",
                "train",
                "--preset",
                "quick",
                "--frames",
                str(TRAIN_FRAMES),
                "--baselines",
                *TRAIN_BASELINES,
                "--out",
                f"{folder}/run",
            ]
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            return TRAIN_FRAMES / (time.perf_counter() - began)

    return rate


def make_case(name: str) -> Callable[[], float]:
    kind, _, argument = name.partition(" ")
    if kind == "replay":
        return replay_case(argument, REPLAYS[argument])
    if kind.startswith(("envs-", "in-place-")):
        return env_case(int(kind[-1]), in_place=kind.startswith("in-place"))
    if kind == "ppo":
        return ppo_case(argument)
    return {"snapshots": snapshot_case, "train": train_case}[kind]()


CASES = [f"replay {policy}" for policy in REPLAYS] + ["snapshots", "envs-1", "envs-2", "in-place-1", "in-place-2"]
CASES += ["ppo mlp-64", "ppo kernel", "train"]


def serve() -> None:
    """The process of one version and case: the case's name in, then a rate out for every further line."""
    rate = make_case(sys.stdin.readline().strip())
    for _ in sys.stdin:
        print(json.dumps(rate()), flush=True)


class Sitting:
    """A process of one version that measures one case; to be used in a `with` statement."""

    def __init__(self, checkout: Path, name: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            env=os.environ | {"PYTHONPATH": str(checkout / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(name)

    def __enter__(self) -> Sitting:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def rate(self) -> float:
        assert self._process.stdout is not None
        self._say("again")
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that measures {self._name} has ended")
        return float(json.loads(line))


def best_rates(name: str, other: Path, seconds: float) -> tuple[float, float]:
    """Best rates of a case in one sitting: of this version, and of the other."""
    with Sitting(REPOSITORY, name) as mine, Sitting(other, name) as theirs:
        best = [mine.rate(), theirs.rate()]  # the first also prepares the case
        until, turn = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            for which in (0, 1) if turn % 2 else (1, 0):
                best[which] = max(best[which], (mine, theirs)[which].rate())
            turn += 1
    return best[0], best[1]


def measure(name: str, other: Path, seconds: float, sittings: int) -> dict[str, Any]:
    rates = [best_rates(name, other, seconds) for _ in range(sittings)]
    low, median, high = np.quantile([mine / theirs for mine, theirs in rates], [0.25, 0.5, 0.75]).tolist()
    best = {"this": max(mine for mine, _ in rates), "other": max(theirs for _, theirs in rates)}
    return {"case": name, **best, "ratio": median, "quartiles": [low, high]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other version")
    parser.add_argument("--seconds", type=float, default=6.0, help="of measuring in turn, per case and sitting, %(default)s")
    parser.add_argument("--sittings", type=int, default=3, help="pairs of processes per case, %(default)s")
    parser.add_argument("--least", type=float, default=0.95, help="ratio that is still accepted, %(default)s")
    parser.add_argument("--cases", nargs="*", default=CASES, help="some of them")
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    rows = []
    for name in options.cases:
        rows.append(row := measure(name, options.other.resolve(), options.seconds, options.sittings))
        low, high = row["quartiles"]
        print(f"{name:24} {row['this']:12,.0f} {row['other']:12,.0f} per s  ratio {row['ratio']:.3f} ({low:.3f} … {high:.3f})", flush=True)
    if options.results:
        options.results.write_text(
            json.dumps({"seconds": options.seconds, "sittings": options.sittings, "cases": rows}, indent=1) + "\n", encoding="utf-8"
        )
    raise SystemExit(int(any(row["ratio"] < options.least for row in rows)))


if __name__ == "__main__":
    main()
