"""Snapshots, audit logs and batch scripts with damage in one place, through the commands that read them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from fuzz.cases import DAMAGED_VALUES, GPU_LOG, Case, change_bytes, change_value, in_words, locations, remove_value

SHAPE = {"name": "a", "gpus": 4, "kind": "V100-16", "cpu_milli": 16_000, "mem_mib": 64_000, "partitions": ["main"], "rack": 0}
JOB = {
    "submit": 0.0, "estimate": 600.0, "num_tasks": 2, "min_tasks": 2, "max_tasks": 2, "gpu_milli": 1000, "cpu_milli": 1000, "mem_mib": 100,
    "priority": 1.0, "requested": 900.0, "kinds": ["V100-16"], "partition": "main", "user": "ann", "predicted": 300.0,
}  # fmt: skip
SNAPSHOT: dict[str, Any] = {
    "version": 1,
    "now": 100.0,
    "queue": [{"job": JOB | {"job_id": "7"}}, {"job": JOB | {"job_id": "8", "gpu_milli": 500, "kinds": []}}],
    "running": [
        {"job": JOB | {"job_id": "6"}, "start": 10.0, "begin": 10.0, "expected_end": 610.0, "first_start": 10.0, "places": [[0, 2, [0, 1]]]}
    ],
    "nodes": [
        {"index": 0, "state": "up", "free_gpus": [2, 3], "free_cpu_milli": 14_000, "free_mem_mib": 63_800, "shape": SHAPE},
        {"index": 1, "state": "drained", "free_gpus": [], "free_cpu_milli": 0, "free_mem_mib": 0,
         "shape": SHAPE | {"name": "b"}},
    ],
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "version": 1, "time": 1.0, "cycle": 3, "policy": "sjf+easy", "max_wait": "3d", "outcome": "decided", "snapshot": SNAPSHOT,
    "decision": {"starts": [], "stops": [], "wake_at": None}, "commands": [], "problem": "",
}  # fmt: skip
SCRIPT = b"#!/bin/sh\n#SBATCH --time=1:00:00 -N 2\n#SBATCH -n 2 --cpus-per-task=3\n#SBATCH --gres=gpu:2 --mem=4G\n#SBATCH -p main\nrun\n"
CLUSTER = b'[[nodes]]\ncount = 2\ngpus = 4\nkind = "V100-16"\ncpus = 16\nmem_gib = 62.5\npartition = "main"\n'
SOUND_FILES = {"snapshot.json": json.dumps(SNAPSHOT).encode(), "cluster.toml": CLUSTER, "job.sh": SCRIPT, "log": GPU_LOG}
SNAPSHOT_USES = (  # files in the current folder
    ("slurm", "when", "7", "--draws", "2", "--snapshot", "snapshot.json"),
    ("slurm", "why", "7", "--snapshot", "snapshot.json"),
    ("optimise", "snapshot.json", "--cluster", "cluster.toml", "--milp-work", "5"),
    ("slurm", "when", "job.sh", "--draws", "2", "--snapshot", "snapshot.json", "--history", "log"),
)
LINES = (
    "--time=99999999999-0", "--time=x", "--time=", "--time=-1", "-t 0", "-N 0", "-N 99999999999", "-N -3", "-N 1-", "-N",
    "--ntasks=1e9", "-c ٣", "--mem=1P", "--mem=-1", "--mem=99999999999999999999T", "--gres=gpu:99999999999999",
    "--gres=gpu:a100:-1", "--gres=", "--gpus-per-node=x", "-p nowhere", "-p \u001b[31m", "--comment='", "-", "--", "--=3",
    "--job-name=<script>", "-J", "--time=1:2:3:4:5", "--exclusive=user", "-n\t2",
)  # fmt: skip


def snapshot_cases(seed: int, times: int = 1) -> Iterator[Case]:
    """Every field of a snapshot with damaged values, or left out, and damaged text."""
    rng = random.Random(f"{seed} snapshots")
    for number, (words, content) in enumerate(_damaged(rng, SNAPSHOT, times)):
        yield _snapshot_case(f"snapshot-{words}", number, content)


def audit_cases(seed: int) -> Iterator[Case]:
    """Every field of an entry of an audit log, and damaged text."""
    rng = random.Random(f"{seed} audit")
    for words, content in _damaged(rng, ENTRY, 1):
        lines = json.dumps(ENTRY).encode() + b"\n" + content.replace(b"\n", b" ") + b"\n"
        yield Case(f"audit-{words}", ("live", "replay", "audit.jsonl"), {"audit.jsonl": lines})


def script_cases(seed: int) -> Iterator[Case]:
    rng = random.Random(f"{seed} scripts")
    texts = [b"#!/bin/sh\n#SBATCH " + line.encode() + b"\nrun\n" for line in LINES] + [change_bytes(rng, SCRIPT, 2) for _ in range(20)]
    for number, text in enumerate(texts):
        yield Case(f"script-{number}", SNAPSHOT_USES[3], SOUND_FILES | {"job.sh": text})


def _damaged(rng: random.Random, sound: dict[str, Any], times: int) -> Iterator[tuple[str, bytes]]:
    for number, place in enumerate(list(locations(sound)) * times):
        if rng.random() < 0.15:
            words, changed = f"without-{'.'.join(map(str, place))}", remove_value(sound, place)
        else:
            value = rng.choice((*DAMAGED_VALUES, None))
            words, changed = in_words(place, value), change_value(sound, place, value)
        yield f"{number}-{words}", json.dumps(changed).encode()
    for number in range(20):
        yield f"text-{number}", change_bytes(rng, json.dumps(sound).encode(), 2)


def _snapshot_case(words: str, number: int, content: bytes) -> Case:
    return Case(words, SNAPSHOT_USES[number % len(SNAPSHOT_USES)], SOUND_FILES | {"snapshot.json": content})
