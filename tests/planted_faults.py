"""Faults that the tests must catch: each is planted in a copy of the tree, in which the tests named here must fail.

A fault is a piece of text and what takes its place. The text is looked for in all sources and must be found exactly once, so that a fault
moves with the code. Run by scripts/plant-faults; tests/unit/test_planted_faults.py checks in every run that all of them can be planted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "scripts", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
PACKAGES = ("sim", "envs", "agents", "evaluation")
FAILED = 1  # pytest's exit code when tests ran and some failed

HEAP = "tests/unit/sim/test_plain_kernels.py::test_without_the_compiler[event_heap.py]"
TREES = "tests/unit/sim/test_plain_kernels.py::test_without_the_compiler[queue_trees.py]"
PROFILE = "tests/unit/sim/test_plain_kernels.py::test_without_the_compiler[free_profile.py]"
FEATURES = "tests/unit/sim/test_plain_kernels.py::test_without_the_compiler[engine_features.py]"
BY_HAND = "tests/golden/test_by_hand.py"
REWARDS = "tests/unit/envs/test_rewards.py"
OBSERVATIONS = "tests/unit/envs/test_observations.py"
PPO = "tests/unit/agents/test_ppo_by_hand.py"
METRICS = "tests/unit/evaluation/test_metrics.py"
WAIT_CAUSES = "tests/unit/evaluation/test_wait_causes.py"
STATISTICS = "tests/unit/evaluation/test_statistics.py"


@dataclass(frozen=True)
class Fault:
    name: str
    old: str
    new: str
    tests: tuple[str, ...]  # those that must notice


FAULTS: dict[str, tuple[Fault, ...]] = {
    "sim": (
        Fault(
            "the event heap overlooks the last child",
            "for other in range(child + 1, min(child + FAN_OUT, size)):",
            "for other in range(child + 1, min(child + FAN_OUT - 1, size)):",
            (HEAP,),
        ),
        Fault(
            "completions of one time come by job instead of by start",
            "return s.first_piece[code] < s.first_piece[other]",
            "return code < other",
            (HEAP,),
        ),
        Fault(
            "minima of the queue trees are not mended when a job leaves",
            "        s.tree[at] = least\n",
            "        s.tree[at] = min(s.tree[at], least)\n",
            (TREES,),
        ),
        Fault(
            "EASY forgets the spare resources at the shadow time",
            "return _lost_slots(w, s, q, head_class, c) <= s.shadow_slack[q]",
            "return _lost_slots(w, s, q, head_class, c) < 0",
            (PROFILE,),
        ),
        Fault(
            "a reservation of Slurm's backfill loop ends before the job does",
            "round_down(w, s, until) if start == 0 else round_up(w, s, until)",
            "round_down(w, s, until)",
            (BY_HAND,),
        ),
        Fault(
            "a blocked job of Slurm's main loop withdraws the nodes of its partitions only if it could use them",
            "        if w.partition_pools[w.class_partitions[c] * pools + p]:\n",
            "        if w.class_allows[c * pools + p]:\n",
            (BY_HAND,),
        ),
        Fault(
            "children of tied accounts are not sorted together",
            "        while after < end and level[line[after]] == level[line[at]]:\n",
            "        while after < end and level[line[after]] > level[line[at]]:\n",
            ("tests/golden/test_fair_orders.py",),
        ),
        Fault(
            "GPUs booked out are not sorted among those that are busy longer",
            "    while source < w.node_gpus[n] and s.free_times[source * stride + place] < until:\n",
            "    while source < w.node_gpus[n] and s.free_times[source * stride + place] > until:\n",
            (PROFILE,),
        ),
        Fault(
            "a reservation stands although a job that it counts on is expected to end later",
            "    s.expected[j] = end\n    q = w.class_queue[c]\n    s.shadow_head[q] = -1\n",
            "    s.expected[j] = end\n    q = w.class_queue[c]\n",
            (BY_HAND,),
        ),
        Fault(
            "victims are stopped in reverse order",
            "return comes_before(s.victim_key[slot], s.victim_job[slot], key, j)",
            "return comes_before(key, j, s.victim_key[slot], s.victim_job[slot])",
            (FEATURES,),
        ),
    ),
    "envs": (
        Fault(
            "the mask of pairs allows hosts without room",
            "mask[at + n] = np.int8(slots_on(w, m, c, n) > 0)",
            "mask[at + n] = np.int8(slots_on(w, m, c, n) >= 0)",
            (OBSERVATIONS,),
        ),
        Fault(
            "of a gang that is being placed all other jobs are legal",
            "legal = p.waiting[q] == gang",
            "legal = p.waiting[q] != gang",
            (OBSERVATIONS,),
        ),
        Fault(
            "running jobs do not count in the completion time",
            "p.term[rewards.JCT] -= present * seconds",
            "p.term[rewards.JCT] -= queued * seconds",
            (REWARDS,),
        ),
        Fault(
            "Jain's index forgets the number of users",
            "return total * total / (number * squares) if number else 1.0",
            "return total * total / squares if number else 1.0",
            (REWARDS,),
        ),
        Fault(
            "a divisor of a reward multiplies",
            "+= term.weight / scale",
            "+= term.weight * scale",
            (REWARDS,),
        ),
        Fault(
            "waiting jobs are listed in reverse order",
            "while at > 0 and w.rank[p.waiting[at - 1]] > w.rank[j]:",
            "while at > 0 and w.rank[p.waiting[at - 1]] < w.rank[j]:",
            (OBSERVATIONS,),
        ),
    ),
    "agents": (
        Fault("PPO clips the ratio on one side", "ratio.clamp(1.0 - ppo.clip, 1.0 + ppo.clip)", "ratio.clamp(max=1.0 + ppo.clip)", (PPO,)),
        Fault("PPO does not clip the value", "if ppo.clip_value is not None:", "if ppo.clip_value is None and old_values is None:", (PPO,)),
        Fault("entropy is punished", "- entropy_weight * entropy", "+ entropy_weight * entropy", (PPO,)),
        Fault(
            "an episode that was cut off is worth nothing more",
            "rollout.rewards[t, step.cut] += discount[step.cut] * rest",
            "rollout.rewards[t, step.cut] += 0.0 * discount[step.cut] * rest",
            (PPO,),
        ),
        Fault(
            "the rest of an episode that was cut off is not discounted",
            "rollout.rewards[t, step.cut] += discount[step.cut] * rest",
            "rollout.rewards[t, step.cut] += rest",
            (PPO,),
        ),
        Fault(
            "the next episode leaks into one that ended",
            "rollout.discounts[t] = discount * torch.from_numpy(~step.ended)",
            "rollout.discounts[t] = discount",
            (PPO,),
        ),
        Fault(
            "advantages of later steps are not discounted",
            "running = surprise + discounts[t] * gae_lambda * running",
            "running = surprise + gae_lambda * running",
            (PPO,),
        ),
        Fault(
            "advantages are not centred",
            "rollout.advantages.copy_((estimate - mean) / deviation)",
            "rollout.advantages.copy_(estimate / deviation)",
            (PPO,),
        ),
        Fault(
            "illegal actions are drawn",
            "heights = (log_probs.clamp(min=UNLIKELY).exp() * mask).cumsum(1)",
            "heights = log_probs.clamp(min=UNLIKELY).exp().cumsum(1)",
            (PPO,),
        ),
        Fault("gradients of workers are added and not averaged", "first /= len(self.workers)", "first /= 1", (PPO,)),
        Fault(
            "the replay takes an episode that was cut off as ended",
            "ended[step.cut] = False",
            "ended[step.cut] = True",
            ("tests/unit/agents/test_d3qn.py",),
        ),
    ),
    "evaluation": (
        Fault(
            "the bootstrap's interval is one of 90 %",
            "ascending[math.ceil(confidence * (len(ascending) - 1))]",
            "ascending[math.ceil((confidence - 0.05) * (len(ascending) - 1))]",
            (STATISTICS,),
        ),
        Fault(
            "windows are not paired",
            "_estimate_difference(mine.sums, other.sums, other.jobs, ratio=ratio",
            "_estimate_difference(mine.sums, 0 * other.sums + other.sums.mean(), other.jobs, ratio=ratio",
            (STATISTICS,),
        ),
        Fault("a tie counts as lost", "0.5 * (per_unit == 0)", "0.0 * (per_unit == 0)", (STATISTICS,)),
        Fault("energy leaves out what idle nodes draw", "joules = idle_watts(cluster) * m.span", "joules = 0.0 * m.span", (METRICS,)),
        Fault(
            "the bounded slowdown has no bound",
            "np.maximum(seconds, BOUND_S, out=seconds)",
            "np.maximum(seconds, 1e-9, out=seconds)",
            (METRICS,),
        ),
        Fault(
            "a job that ends at its deadline misses it",
            "m.schedule.end[m.jobs] > deadline",
            "m.schedule.end[m.jobs] >= deadline",
            (METRICS,),
        ),
        Fault(
            "a stopped job's service is its time from start to end",
            "seconds[stopped] = on_machine[m.rows[stopped]]",
            "seconds[stopped] = seconds[stopped]",
            (METRICS,),
        ),
        Fault(
            "a repaired node is not open for the causes of waits",
            "            _reopen(w, m, z, n)\n",
            "            close_node(w, m, n)\n",
            (WAIT_CAUSES,),
        ),
        Fault(
            "overdue jobs are no cause of waits",
            "t.late[w.class_queue[c]] |= t.overdue[c] > 0",
            "t.late[w.class_queue[c]] |= t.overdue[c] > 1",
            (WAIT_CAUSES,),
        ),
        Fault(
            "causes add up to the wait only roughly",
            "exact[np.arange(len(waits)), largest] = left",
            "exact[np.arange(len(waits)), largest] = seconds[np.arange(len(waits)), largest]",
            (WAIT_CAUSES,),
        ),
    ),
}


def sources(tree: Path) -> Iterator[Path]:
    yield from sorted((tree / "src").rglob("*.py"))


def file_of(fault: Fault, tree: Path = REPOSITORY) -> Path:
    """The one source that holds the fault's text, once."""
    found = [(path, count) for path in sources(tree) if (count := path.read_text(encoding="utf-8").count(fault.old))]
    if len(found) != 1 or found[0][1] != 1:
        places = ", ".join(f"{path.relative_to(tree)} ({count}×)" for path, count in found) or "nowhere"
        raise LookupError(
            f"fault {fault.name!r}: its text is to be found once and was found in: {places}\n  {fault.old.strip()}\n"
            "hint: the code has changed; bring the fault in tests/planted_faults.py up to date"
        )
    return found[0][0]


def plant(fault: Fault, tree: Path) -> None:
    path = file_of(fault, tree)
    path.write_text(path.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".hypothesis"))
        elif source.exists():
            shutil.copy2(source, target / name)


def fingerprint(fault: Fault | None, tests: Sequence[str], compiled: bool) -> str:
    """Of the fault, of what runs, and of all sources and tests: an outcome counts until one of them changes."""
    digest = hashlib.sha256(repr((fault, tests, compiled)).encode())
    for folder in ("src", "tests"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run_tests(fault: Fault | None, tests: Sequence[str], compiled: bool) -> tuple[int, str]:
    """pytest's exit code in a copy of the tree with the fault, and the end of what it printed."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        if fault is not None:
            plant(fault, tree)
        traces = os.environ.get("QUEUEWISE_TRACES", str(REPOSITORY.parent / "shared" / "traces"))
        environment = os.environ | {
            "PYTHONPATH": f"{tree / 'src'}:{tree / 'tests'}", "QUEUEWISE_TRACES": traces, "NUMBA_DISABLE_JIT": str(int(not compiled)),
            "CI": "1",  # the same examples in every run
        }  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout[-3000:]


class Outcomes:
    """What was found so far, one line of JSON each, in a file that outlives an interrupted run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.known: dict[str, dict[str, object]] = {entry["id"]: entry for entry in map(json.loads, lines)}

    def of(self, fault: Fault | None, tests: Sequence[str], compiled: bool) -> dict[str, object]:
        key = fingerprint(fault, tests, compiled)
        if key not in self.known:
            began = time.monotonic()
            code, output = run_tests(fault, tests, compiled)
            expected = FAILED if fault is not None else 0
            verdict = "caught" if code == FAILED else "missed" if code == 0 else f"error: pytest ended with {code}"
            if fault is None:
                verdict = "pass" if code == expected else "error: the tests fail without any fault"
            entry: dict[str, object] = {"id": key, "verdict": verdict, "seconds": round(time.monotonic() - began, 1), "output": output}
            self.known[key] = entry
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        return self.known[key]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/plant-faults", description="Plant faults one by one and see whether the tests notice.")
    parser.add_argument("match", nargs="*", help="only faults whose package or name contains one of these")
    parser.add_argument("--all", action="store_true", help="run all tests, as scripts/test does, and not only those named with the fault")
    parser.add_argument(
        "--compiled", action="store_true", help="compile the kernels; every fault of sim or envs then costs a minute or two"
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "planted-faults.jsonl", help="outcomes, by which a run resumes")
    arguments = parser.parse_args()
    chosen = [
        (package, fault)
        for package, faults in FAULTS.items()
        for fault in faults
        if not arguments.match or any(text in f"{package}: {fault.name}" for text in arguments.match)
    ]
    if not chosen:
        parser.error(f"no fault matches {' '.join(arguments.match)}")
    for _, fault in chosen:
        file_of(fault)
    compiled = arguments.compiled or arguments.all
    outcomes = Outcomes(arguments.out)
    named = sorted({test for _, fault in chosen for test in fault.tests})
    bad = report("no fault", outcomes.of(None, ["tests"] if arguments.all else named, compiled))
    for package, fault in chosen:
        bad += report(f"{package}: {fault.name}", outcomes.of(fault, ["tests"] if arguments.all else fault.tests, compiled))
    print(f"{len(chosen)} faults, {bad} not caught or in error")
    return int(bad > 0)


def report(name: str, outcome: dict[str, object]) -> int:
    """One line, and the end of the output where something is wrong; returns how many are wrong."""
    good = outcome["verdict"] in ("caught", "pass")
    print(f"{outcome['verdict']:7} {outcome['seconds']:6} s  {name}", flush=True)
    if not good:
        print(outcome["output"])
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
