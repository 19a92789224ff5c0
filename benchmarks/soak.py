"""Random commands, kills, full disks and damaged files; and memory over many resets and replays in one process.

    python benchmarks/soak.py --minutes 60 --seed 0 --out FOLDER      commands; the same again continues where it stopped
    python benchmarks/soak.py resets --times 1000000                  resets of an environment in one process
    python benchmarks/soak.py simulations --times 10000               replays in one process

A round of `commands` is one action of ROUNDS with a random part of its own, which depends on the seed and the number of the round. It ends
with a check: no traceback, one error line, no process left behind, and the files of a command that was killed or had no space, once it was
run again, are those of one that was not. FOLDER/rounds.jsonl has a line per round, and problems keep their folder. `resets` and
`simulations` fail if memory is not flat after the first tenth of the work: a line through all samples rises by more than MOST_RISE_MIB,
or one of them is more than MOST_GROWTH_MIB above the first. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from fuzz.broken_logs import log_cases, packed_cases  # noqa: E402
from fuzz.broken_policies import name_cases, rule_cases  # noqa: E402
from fuzz.broken_runs import RUN_CASES, damage_run  # noqa: E402
from fuzz.broken_settings import cluster_cases, condition_cases  # noqa: E402
from fuzz.cases import GPU_LOG, SWF, Case  # noqa: E402

STORED = REPOSITORY / "tests" / "unit" / "agents" / "stored_runs" / "ppo"
MARK = "QUEUEWISE_SOAK"  # in the environment of every process that a round starts
LONGEST_S = 600.0  # of a command: then it hangs; compiling takes minutes on a busy machine
ORPHANS_END_WITHIN_S = 10.0
LOOKED_AFTER_S, LONGEST_STEP_S = 0.1, 2.0  # between two looks at a process: asked for, and counted at most
# What differs from run to run or from commit to commit, and the digest of a card that has such facts:
TIMES = frozenset(
    {"engine_s", "jobs_per_s", "decision_us", "frames_per_s", "steady_frames_per_s", "seconds", "imitation_s", "val_s", "git", "digest"}
)
MOST_GROWTH_MIB, MOST_RISE_MIB = 24.0, 8.0  # of memory that is called flat: of any sample, and of a line through all of them
SAMPLED_EVERY_S, PRINTED_EVERY_S = 0.2, 10.0  # of CPU
KNOWN_WINDOWS, NEW_WINDOW_EVERY = 256, 20  # of resets; to lay out a window takes 50 times as long as to begin one again
ENDINGS = (0, 2, 3)  # exit codes that are answers
INPUTS = ("--workload", "log.csv", "--cluster", "2x4:V100-16")
COMMANDS: dict[str, tuple[str, ...]] = {  # what they write into the folder `run` does not depend on when they were stopped
    "simulated": ("simulate", *INPUTS, "--policy", "fcfs", "--policy", "sjf+easy", "--out", "run"),
    "evaluated": (
        "evaluate", *INPUTS, "--policy", "fcfs", "--policy", "sjf+easy", "--windows", "4", "--window-jobs", "100", "--start", "empty",
        "--out", "run",
    ),
    "trained": (
        "train", "--workload", "bursty", "--cluster", "2x2:V100-16", "--episode-jobs", "20", "--frames", "4096", "--task.window", "8",
        "--network.width", "8", "--ppo.num-envs", "4", "--ppo.steps", "32", "--ppo.minibatch", "64", "--val-windows", "2",
        "--report-windows", "2", "--eval-every", "8", "--checkpoint-every", "4", "--out", "run",
    ),
}  # fmt: skip

OTHERS: dict[str, tuple[str, ...]] = {  # what they write depends on time, or is one file
    "learned": (
        "learn", "long.csv", "--cluster", "2x4:V100-16", "--budget", "1s", "--split", "0.5,0.2,0.3", "--out", "run", "--export", "rule.py",
    ),
    "predicted": ("predict", "long.csv", "--cluster", "2x4:V100-16", "--plot", "figure.png", "--json"),
    "ranked": ("suite", "--quick", "--policy", "aged+easy"),
    "validated": ("validate", "long.swf", "--cluster", "flat:64", "--out", "run"),
    "described": ("clusters", "from-log", "long.swf", "--out", "cluster.toml"),
    "fitted": ("workload", "fit", "long.csv", "--out", "model.toml"),
    "reported": ("report", "run"),
    "exported": ("export", "run", "--out", "network.onnx"),
}  # fmt: skip
WRITTEN = {
    "learned": ("run/rule.toml", "rule.py"),
    "predicted": ("figure.png",),
    "validated": ("run/summary.json",),
    "described": ("cluster.toml",),
    "fitted": ("model.toml",),
    "reported": ("run/report.html",),
    "exported": ("network.onnx",),
}


class RunningTime:
    """Seconds for which this process ran. While it is paused (SIGSTOP, or a machine that sleeps), so are its commands, and none hangs."""

    def __init__(self) -> None:
        self._last, self._spent = time.monotonic(), 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        self._spent, self._last = self._spent + min(now - self._last, LONGEST_STEP_S), now
        return self._spent


running_time = RunningTime()


@dataclass
class Soak:
    """A folder of rounds, and the uninterrupted runs that others are compared with."""

    home: Path
    seed: int
    problems: list[str] = field(default_factory=list)  # of the current round

    def run(self, folder: Path, arguments: Sequence[str], **limits: Any) -> tuple[int | None, str]:
        """Run a command in the folder and check its answer. Returns the exit code (None: it was killed) and what it printed as errors."""
        code, err, seconds = start(folder, arguments, **limits)
        if ("Traceback" in err and not is_of_start(err)) or (code is not None and code not in (*ENDINGS, 130)):
            self.problems.append(f"{' '.join(arguments)}: exit code {code}: {err[-2000:]}")
        if code == 2 and [line.partition(":")[0] for line in err.splitlines()[-2:]] != ["error", "hint"]:
            self.problems.append(f"{' '.join(arguments)}: no error with a hint: {err[-500:]}")
        if seconds > LONGEST_S:
            self.problems.append(f"{' '.join(arguments)}: more than {LONGEST_S:g} s")
        if left := orphans():
            self.problems.append(f"{' '.join(arguments)}: left processes behind: {left}")
        return code, err

    def reference(self, kind: str) -> tuple[Path, float]:
        """The folder of a run that nothing disturbed, and how many seconds it took."""
        folder = self.home / "reference" / kind
        if not (folder / "seconds").exists():
            shutil.rmtree(folder, ignore_errors=True)
            write_log(folder)
            for _ in range(2):  # the first may compile
                shutil.rmtree(folder / "run", ignore_errors=True)
                code, err, seconds = start(folder, COMMANDS[kind])
                if code != 0:
                    raise SystemExit(f"{' '.join(COMMANDS[kind])} failed without any disturbance:\n{err}")
            (folder / "seconds").write_text(f"{seconds}")
        return folder / "run", float((folder / "seconds").read_text())

    def compare(self, kind: str, folder: Path) -> None:
        """Check that a run that was disturbed and then completed has the content of one that was not."""
        wanted, found = content(self.reference(kind)[0]), content(folder / "run")
        different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        if different:
            self.problems.append(f"{kind}: {', '.join(different[:8])} differ from an undisturbed run")
        if rests := [str(path.relative_to(folder)) for path in (folder / "run").rglob("*.part")]:
            self.problems.append(f"{kind}: temporary files are left: {rests[:8]}")

    def complete(self, kind: str, folder: Path) -> None:
        """Run the command again as a user would after a disturbance, until it has finished."""
        if (folder / "run" / "summary.json").exists():
            return
        code, err = self.run(folder, again(kind, folder))
        if code != 0:
            self.problems.append(f"{kind}: could not be completed: exit code {code}: {err[-500:]}")


# --- rounds: what happens in one, and what is demanded of it


def killed(soak: Soak, rng: random.Random, folder: Path) -> str:
    """A command is killed or interrupted, up to three times, and then completed."""
    kind = rng.choice(list(COMMANDS))
    _, seconds = soak.reference(kind)
    write_log(folder)
    done = []
    for _ in range(rng.randint(1, 3)):
        number = rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
        delay = seconds * rng.random()
        if not (folder / "run" / "summary.json").exists():
            soak.run(folder, again(kind, folder), stop=(number, delay))
            done.append(f"{number.name} after {delay:.1f} s")
    soak.complete(kind, folder)
    soak.compare(kind, folder)
    return f"{kind}: {', '.join(done)}"


def full_disk(soak: Soak, rng: random.Random, folder: Path) -> str:
    """Files cannot grow beyond some size while a command writes; then they can."""
    kind = rng.choice(("simulated", "evaluated", "trained"))
    write_log(folder)
    size = int(2 ** rng.uniform(0, 17))
    code, err = soak.run(folder, COMMANDS[kind], file_bytes=size)
    if code == 2 and not err:
        soak.problems.append(f"{kind}: no space for {size} bytes, and not a word")
    soak.complete(kind, folder)
    soak.compare(kind, folder)
    return f"{kind}: files of at most {size} bytes"


def disturbed(soak: Soak, rng: random.Random, folder: Path) -> str:
    """A command is killed, interrupted or has no space, and then nothing disturbs it: all that it writes is there."""
    kind = rng.choice(list(OTHERS))
    write_log(folder, "long.csv", 100)
    (folder / "long.swf").write_bytes(SWF)
    if kind in ("reported", "exported"):  # a finished run
        shutil.copytree(soak.reference("simulated")[0] if kind == "reported" else STORED, folder / "run")
    done = []
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.5:
            size = int(2 ** rng.uniform(0, 14))
            soak.run(folder, OTHERS[kind], file_bytes=size)
            done.append(f"files of at most {size} bytes")
        else:
            number = rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
            delay = 15 * rng.random()
            soak.run(folder, OTHERS[kind], stop=(number, delay))
            done.append(f"{number.name} after {delay:.1f} s")
    if kind != "validated" or not (folder / WRITTEN[kind][0]).exists():  # a finished run is not written again
        code, err = soak.run(folder, OTHERS[kind])
        if code != 0:
            soak.problems.append(f"{kind}: could not be completed: exit code {code}: {err[-500:]}")
    if missing := [name for name in WRITTEN.get(kind, ()) if not (folder / name).exists()]:
        soak.problems.append(f"{kind}: {missing} is missing")
    if rests := [str(path.relative_to(folder)) for path in (folder / "run").rglob("*.part")]:
        soak.problems.append(f"{kind}: temporary files are left: {rests[:8]}")
    return f"{kind}: {', '.join(done)}"


def broken_input(soak: Soak, rng: random.Random, folder: Path) -> str:
    """A case of the fuzz corpus with a seed of its own."""
    make: Callable[[int], Iterator[Case]] = rng.choice((log_cases, packed_cases, cluster_cases, condition_cases, name_cases, rule_cases))
    cases = [case for case in make(rng.randrange(1 << 30)) if all("\0" not in word for word in case.arguments)]
    case = rng.choice(cases)
    for name, text in case.files.items():
        (folder / name).write_bytes(text)
    soak.run(folder, case.arguments)
    return case.name


def damaged_run(soak: Soak, rng: random.Random, folder: Path) -> str:
    """A finished run with a damaged file is read."""
    case = rng.choice(RUN_CASES)
    done = damage_run(soak.reference(case.run)[0], case, rng.randrange(1 << 30), folder)
    soak.run(folder, case.arguments)
    return f"{case.arguments[0]}: {done}"


def damaged_then_repeated(soak: Soak, rng: random.Random, folder: Path) -> str:
    """An unfinished run has lost or damaged files: the command completes it, or says which file is the problem."""
    kind = rng.choice(("simulated", "evaluated"))
    shutil.copytree(soak.reference(kind)[0].parent, folder, dirs_exist_ok=True)
    (folder / "run" / "summary.json").unlink()
    files = sorted(path for path in (folder / "run").rglob("*") if path.is_file() and path.name != "config.toml")
    path = rng.choice(files)
    cut = rng.randint(0, path.stat().st_size) if rng.random() < 0.5 else None
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:cut])
    code, err = soak.run(folder, COMMANDS[kind])
    if code == 0:
        soak.compare(kind, folder)
    elif path.name not in err:
        soak.problems.append(f"{kind}: {path.name} is damaged, but the answer is {err[-500:]}")
    return f"{kind}: {path.relative_to(folder)} {'removed' if cut is None else f'cut at {cut}'}"


ROUNDS: tuple[Callable[[Soak, random.Random, Path], str], ...] = (
    killed, killed, full_disk, disturbed, disturbed, broken_input, broken_input, damaged_run, damaged_then_repeated,
)  # fmt: skip


# --- commands and their files


def again(kind: str, folder: Path) -> tuple[str, ...]:
    """The command, or what continues it: training is resumed by name, all others by the same command."""
    return ("train", "--resume", "run") if kind == "trained" and (folder / "run" / "config.toml").exists() else COMMANDS[kind]


def start(
    folder: Path, arguments: Sequence[str], *, stop: tuple[signal.Signals, float] | None = None, file_bytes: int | None = None
) -> tuple[int | None, str, float]:
    """Run a command, send it a signal after some seconds. Returns the exit code (None: ended by a signal), stderr and seconds."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

    environment = os.environ | {MARK: "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "NO_COLOR": "1"}
    begin = running_time()
    process = subprocess.Popen(
        [sys.executable, "-m", "queuewise", *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace",
        preexec_fn=limit,  # noqa: PLW1509 (this process has no threads)
    )  # fmt: skip
    signals = [(stop[1], stop[0])] if stop else []  # in turn: seconds, signal
    signals.append((LONGEST_S + (stop[1] if stop else 0.0), signal.SIGKILL))
    while True:
        try:
            _, err = process.communicate(timeout=LOOKED_AFTER_S)
            break
        except subprocess.TimeoutExpired:
            if signals and running_time() - begin > signals[0][0]:
                process.send_signal(signals.pop(0)[1])
    code = process.returncode if process.returncode >= 0 else None
    if not signals or (code is None and not stop):
        code = 1  # it hung, or crashed
    return code, err, running_time() - begin


def is_of_start(err: str) -> bool:
    """Whether Python was interrupted while it was starting, before any code of the command line ran."""
    return err.rstrip().endswith("KeyboardInterrupt") and "queuewise/cli" not in err


def orphans() -> list[str]:
    """Processes that a command started and that outlive it."""
    until = running_time() + ORPHANS_END_WITHIN_S
    while (left := list(_marked())) and running_time() < until:
        time.sleep(LOOKED_AFTER_S)
    return left


def _marked() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and f"{MARK}=1".encode() in (entry / "environ").read_bytes():
                yield f"{entry.name} {(entry / 'cmdline').read_bytes().decode(errors='replace')[:200]}"
        except OSError:  # it has ended, or belongs to somebody else
            continue


def write_log(folder: Path, name: str = "log.csv", repeats: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header, *rows = GPU_LOG.splitlines(keepends=True)
    repeated = b"".join(
        b"%d,%s" % (int(row.partition(b",")[0]) + 720 * times, row.partition(b",")[2]) for times in range(repeats) for row in rows
    )
    (folder / name).write_bytes(header + repeated)


def content(run: Path) -> dict[str, Any]:
    """What a run folder contains, without the times that its computation took."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.suffix == ".json":
            found[name] = _without_times(json.loads(path.read_text()))
        elif path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).hash_rows().to_list()
        elif path.name == "summary.csv":
            table = pl.read_csv(path)
            found[name] = table.drop([column for column in table.columns if column.partition(".")[0] in TIMES]).rows()
        elif path.suffix == ".safetensors" and "checkpoints" not in path.parts:  # of a resumed run other ones may be kept
            found[name] = _tensors(path)
    return found


def _without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_times(value) for key, value in data.items() if key not in TIMES}
    return [_without_times(entry) for entry in data] if isinstance(data, list) else data


def _tensors(path: Path) -> dict[str, bytes]:
    from safetensors.numpy import load_file

    return {name: np.ascontiguousarray(array).tobytes() for name, array in load_file(path).items()}


# --- parts of the soak


def soak_commands(home: Path, seed: int, minutes: float, rounds: int | None) -> int:
    """Rounds until the time is over, those of earlier calls included. Returns the number of rounds with problems."""
    home.mkdir(parents=True, exist_ok=True)
    table = home / "rounds.jsonl"
    past = [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []
    if any(row["seed"] != seed for row in past):
        raise SystemExit(f"{table} has rounds of another seed; use another folder")
    spent, number = sum(row["seconds"] for row in past), len(past)
    while spent < 60 * minutes and (rounds is None or number < rounds):
        rng = random.Random(f"{seed} {number}")
        soak = Soak(home, seed)
        action = rng.choice(ROUNDS)
        folder = home / f"round-{number:05d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        begin = running_time()
        done = action(soak, rng, folder)
        seconds = running_time() - begin
        row = {"seed": seed, "round": number, "action": action.__name__, "what": done, "seconds": seconds, "problems": soak.problems}
        with table.open("a") as file:
            file.write(json.dumps(row) + "\n")
        past.append(row)
        print(
            f"{number:5d} {seconds:6.1f} s  {action.__name__}: {done}" + "".join(f"\n      PROBLEM {p}" for p in soak.problems), flush=True
        )
        if not soak.problems:
            shutil.rmtree(folder)
        spent, number = spent + seconds, number + 1
    bad = [row for row in past if row["problems"]]
    print(f"{number} rounds in {spent / 60:.1f} minutes, {len(bad)} with problems; {dict(Counter(row['action'] for row in past))}")
    return len(bad)


def soak_resets(times: int) -> int:
    """Resets of an environment, most of them to windows that it has seen, some to new ones; and resets of a vector of them by itself."""
    import gymnasium as gym

    from queuewise.envs.vector import QueuewiseVectorEnv

    arguments: dict[str, Any] = {"workload": "bursty", "cluster": "2x2:V100-16", "episode_jobs": 2, "window": 4}
    env = gym.make("queuewise:Queuewise/Job-v0", **arguments)
    envs = QueuewiseVectorEnv(64, "job", threads=1, pool=KNOWN_WINDOWS, **arguments)
    envs.reset(seed=0)

    def reset(number: int) -> int:
        _, info = env.reset(seed=number if number % NEW_WINDOW_EVERY == 0 else number % KNOWN_WINDOWS)
        env.step(int(np.flatnonzero(info["action_mask"])[0]))
        if number % 4:
            return 1
        _, _, terminated, truncated, _ = envs.step(envs.legal_actions())
        return 1 + int((terminated | truncated).sum())

    return watch_memory("resets", times, reset)


def soak_simulations(times: int) -> int:
    """Replays with policies and seeds in turn."""
    from queuewise import load_cluster, simulate
    from queuewise.workload.models import generate

    cluster = load_cluster("2x4:V100-16")
    policies = ("fcfs+easy", "sjf+conservative", "tiresias", "multifactor@spread", "wfp3+greedy", "random")

    def replay(number: int) -> int:
        simulate(generate("bursty", 100, seed=number % 1000), cluster, policies[number % len(policies)], seed=number)
        return 1

    return watch_memory("simulations", times, replay)


def watch_memory(what: str, times: int, work: Callable[[int], int]) -> int:
    """Work until so many things are done (`work` returns how many it did), and print the memory on the way; 1 if it is not flat."""
    samples: list[tuple[float, float]] = []  # things done, MiB
    done, calls, begin, printed = 0, 0, time.process_time(), -math.inf
    while done < times:
        done += work(calls)
        calls += 1
        spent = time.process_time() - begin
        if spent < len(samples) * SAMPLED_EVERY_S and done < times:
            continue
        samples.append((done, memory_mib()))
        if spent - printed > PRINTED_EVERY_S or done >= times:
            printed = spent
            print(f"{done:9,d} {what}: {samples[-1][1]:.1f} MiB, {spent:.0f} s of CPU", flush=True)
    rise, highest = growth(samples)
    print(f"memory after the first tenth of {done:,} {what}: a line through {len(samples):,} samples rises by {rise:+.1f} MiB "
          f"(limit {MOST_RISE_MIB:g}), the highest is {highest:+.1f} MiB (limit {MOST_GROWTH_MIB:g})")  # fmt: skip
    return int(rise > MOST_RISE_MIB or highest > MOST_GROWTH_MIB)


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """MiB by which a line through the samples rises, and by which the highest is above the first, without the first tenth of the work."""
    done, sizes = np.array(samples).T
    counted = done >= done[-1] / 10
    slope = np.polyfit(done[counted], sizes[counted], 1)[0] if counted.sum() > 1 else 0.0
    return float(slope * np.ptp(done[counted])), float(sizes[counted].max() - sizes[counted][0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="commands", choices=("commands", "resets", "simulations"))
    parser.add_argument("--minutes", type=float, default=60.0, help="of commands, %(default)g")
    parser.add_argument("--rounds", type=int, help="of commands at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="folder of commands, %(default)s")
    parser.add_argument("--times", type=int, help="resets (a million) or simulations (10,000)")
    options = parser.parse_args()
    if options.part == "commands":
        return int(soak_commands(options.out.resolve(), options.seed, options.minutes, options.rounds) > 0)
    if options.part == "resets":
        return soak_resets(options.times or 1_000_000)
    return soak_simulations(options.times or 10_000)


if __name__ == "__main__":
    raise SystemExit(main())
