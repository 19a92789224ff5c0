"""Compare the speed of two versions of Queuewise in one run: python benchmarks/interleaved.py OTHER_CHECKOUT [--rounds 12]

On a shared machine figures of different minutes do not compare. So one process per version stays open, and both are asked in turn to do
the same short piece of work, through the public interface only. The table shows the best rate of each and their ratio (this version ÷ the
other); the exit code is 1 if a ratio is below --least. Both versions compile their engines first if their caches are cold.
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

REPOSITORY = Path(__file__).resolve().parent.parent
CLUSTER = "250x8:V100-16"
REPLAYS = {  # policy: jobs
    "fcfs": 300_000, "sjf": 300_000, "fcfs+easy": 300_000, "wfp3+easy": 20_000, "srtf": 100_000, "las": 100_000, "las2d": 100_000,
    "tiresias": 100_000, "gittins": 100_000, "priority-preempt": 100_000, "defrag": 100_000, "fcfs+conservative": 10_000,
}  # fmt: skip
ENVS, STEPS = 128, 300
PPO_FRAMES = 65_536


def replay_case(policy: str, jobs: int) -> Callable[[], float]:
    """Jobs per second of one replay, by the engine's own clock."""
    import queuewise
    from queuewise.workload.models import generate

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
    from queuewise.workload.models import generate

    workload = generate("bench", 5_000, gpus=2000, load=0.9)
    simulation = Simulation(workload, queuewise.load_cluster(CLUSTER), "fcfs+easy")
    simulation.run(float(workload.submit[2_500]))
    remember: Any = getattr(simulation, "remember", simulation.snapshot)  # its name in earlier versions

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(200):
            simulation.restore(remember())
        return 200 / (time.perf_counter() - began)

    return measure


def env_case(threads: int) -> Callable[[], float]:
    from queuewise.envs import QueuewiseVectorEnv

    envs: Any = QueuewiseVectorEnv(
        ENVS, "job", threads=threads, copy=False, cluster="16x8:V100-16", jobs=256, pool=64, model_args={"load": 0.9}
    )
    envs.reset(seed=0)
    envs.legal_actions(seed=1)
    for _ in range(2000):  # until every window has been laid out
        envs.step(envs.legal_actions())

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            envs.step(envs.legal_actions())
        return ENVS * STEPS / (time.perf_counter() - began)

    return measure


def ppo_case() -> Callable[[], float]:
    """Frames per second of whole short trainings, compilation and imports included."""
    import tempfile

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "queuewise",
                "train",
                "--preset",
                "quick",
                "--frames",
                str(PPO_FRAMES),
                "--out",
                f"{folder}/run",
            ]
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            return PPO_FRAMES / (time.perf_counter() - began)

    return measure


def make_case(name: str) -> Callable[[], float]:
    kind, _, argument = name.partition(" ")
    if kind == "replay":
        return replay_case(argument, REPLAYS[argument])
    return {"snapshots": snapshot_case, "envs-1": lambda: env_case(1), "envs-2": lambda: env_case(2), "ppo": ppo_case}[kind]()


CASES = [f"replay {policy}" for policy in REPLAYS] + ["snapshots", "envs-1", "envs-2", "ppo"]


def serve() -> None:
    """The process of one version: a line with a case's name in, a line with its rate out."""
    made: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made.clear()  # one case at a time, so that memory does not pile up
            made[name] = make_case(name)
        print(json.dumps(made[name]()), flush=True)


class Version:
    def __init__(self, checkout: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self, name: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that measures {name} has ended")
        return float(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=12, help="per case, %(default)s")
    parser.add_argument("--least", type=float, default=0.95, help="ratio that is still accepted, %(default)s")
    parser.add_argument("--cases", nargs="*", default=CASES, help="some of them")
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    mine, other = Version(REPOSITORY), Version(options.other.resolve())
    rows = []
    for name in options.cases:
        rates: tuple[list[float], list[float]] = ([], [])
        for turn in range(3 if name == "ppo" else options.rounds):
            for which in (0, 1) if turn % 2 else (1, 0):
                rates[which].append((mine, other)[which].rate(name))
        best = max(rates[0]), max(rates[1])
        rows.append({"case": name, "this": best[0], "other": best[1], "ratio": best[0] / best[1]})
        print(f"{name:28} {best[0]:14,.0f} {best[1]:14,.0f} per second  ratio {best[0] / best[1]:.3f}", flush=True)
    mine.close()
    other.close()
    if options.results:
        options.results.write_text(json.dumps({"rounds": options.rounds, "cases": rows}, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(int(any(row["ratio"] < options.least for row in rows)))


if __name__ == "__main__":
    main()
