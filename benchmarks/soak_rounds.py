"""What happens in a round of the soak, and what is demanded of it.

A round has a random part of its own. It ends with a check: no traceback, one error line, no process left behind, and the files of a command
that was killed or had no space, once it was run again, are those of one that was not.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from soak_processes import LONGEST_S, is_of_start, orphans, start

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from fuzz.broken_logs import log_cases, packed_cases  # noqa: E402
from fuzz.broken_policies import name_cases, rule_cases  # noqa: E402
from fuzz.broken_runs import RUN_CASES, damage_run  # noqa: E402
from fuzz.broken_settings import cluster_cases, condition_cases  # noqa: E402
from fuzz.cases import GPU_LOG, SWF, Case  # noqa: E402

STORED = REPOSITORY / "tests" / "unit" / "agents" / "stored_runs" / "ppo"
# What differs from run to run or from commit to commit, and the digest of a card that has such facts:
TIMES = frozenset(
    {"engine_s", "jobs_per_s", "decision_us", "frames_per_s", "steady_frames_per_s", "seconds", "imitation_s", "val_s", "git", "digest"}
)
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


def again(kind: str, folder: Path) -> tuple[str, ...]:
    """The command, or what continues it: training is resumed by name, all others by the same command."""
    return ("train", "--resume", "run") if kind == "trained" and (folder / "run" / "config.toml").exists() else COMMANDS[kind]


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
