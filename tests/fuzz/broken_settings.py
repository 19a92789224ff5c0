"""Cluster files and conditions with one damaged value or damaged text, and command-line options with damaged values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from fuzz.cases import DAMAGED_VALUES, GPU_LOG, SWF, Case, change_bytes, change_value, in_words, locations, remove_value
from queuewise.config import to_toml

CLUSTER: dict[str, Any] = {
    "name": "small",
    "notes": "two kinds",
    "node_penalty": 0.1,
    "rack_penalty": 0.2,
    "speeds": {"V100-16": 1.0, "A100-80": 2.0},
    "nodes": [
        {"name": "a", "count": 2, "gpus": 4, "kind": "V100-16", "cpus": 16, "mem_gib": 64, "nodes_per_rack": 1, "idle_watts": 90},
        {"count": 1, "gpus": 8, "kind": "A100-80", "cpus": 64.5, "core_watts": 3.5, "partitions": ["x", "y"]},
    ],
    "virtual_clusters": [{"name": "u0", "guaranteed_gpus": 4, "max_gpus": 8}, {"name": "u1", "guaranteed_gpus": 2}],
}
CONDITIONS: dict[str, Any] = {
    "requeue": True,
    "dependencies": False,
    "resize": "both",
    "quotas": False,
    "preemption": {
        "mode": "kill", "quantum_s": 30, "checkpoint_s": 2, "checkpoint_per_gpu_s": 0.5, "restart_s": 5, "restart_per_gpu_s": 1,
        "transfer_s": 3, "transfer_per_gpu_s": 1, "checkpoint_every_s": 60, "kind_factor": {"V100-16": 1.5},
    },
    "failures": {"mtbf_h": 20, "mttr_h": 0.2, "seed": 1},
    "outages": [{"node": 1, "start": 100, "end": 300, "kind": "drain"}, {"node": 0, "start": 50.5, "end": 90}],
    "maintenance": [{"nodes": [0, 1], "start": 500, "end": 700, "notice_s": 50}],
    "power": {"sleep_after_s": 20, "wake_s": 5, "sleep_watts": 10, "wake_watts": 50, "price_by_hour": [0.1] * 24},
    "fairness": {
        "half_life_s": 1000, "max_age_s": 500, "fair_tree": True, "favor_small": False, "weights": {"age": 10, "gpu": 2.5},
        "accounts": {"p": {"shares": 3}, "q": {"shares": 1, "parent": "p", "priority": 2, "users": {"u1": 2}}},
        "partition_priority": {"default": 2}, "qos_priority": {"high": 3},
    },
}  # fmt: skip
RESERVED: dict[str, Any] = {
    "reservations": [
        {"name": "course", "nodes": [0], "start": 100, "duration_s": 300, "users": ["u1"]},
        {"partition": "default", "count": 1, "start": 600, "end": 900, "users": ["u2"]},
    ]
}
POLICIES = ("fcfs+easy", "multifactor+conservative", "tiresias", "sjf@spread", "fairtree+slurm", "gittins")
WITHOUT_PREEMPTION = ("fcfs+easy", "sjf+conservative@spread")  # preemptive policies refuse reservations
TEXTS = {
    "deep-lists": b"name = " + b"[" * 5000 + b"]" * 5000,
    "deep-tables": b"[" + b".".join([b"a"] * 3000) + b"]\nx = 1\n",
    "deep-inline": b"x = " + b"{a = " * 2000 + b"1" + b"}" * 2000,
    "long-number": b"name = " + b"9" * 10_000,
    "not-utf8": b"name = '\xff'",
    "binary": bytes(range(256)),
    "bom": b"\xef\xbb\xbfname = 'x'",
    "empty": b"",
    "json": b'{"nodes": []}',
    "control": b"name = '\x00'",
    "twice": b"name = 'a'\nname = 'b'\n",
    "dates": b"name = 1979-05-27T07:32:00Z\n[[nodes]]\ncount = 1979-05-27\n",
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "--jobs": ("0", "-1", "1e3", "1000000000000", "99999999999999999999", "x", ""),
    "--seed": ("-1", "18446744073709551616", "9" * 40, "nan"),
    "--load-factor": ("0", "-1", "inf", "nan", "1e300", "1e-300", "1e-320", "x"),
    "--elastic": (
        "0.5", "2,0.5-2,linear", "0.5,0.5-2,amdahl", "0.5,0-1e30,linear", "0.5,1-1e9,linear", "nan,nan-nan,power:nan", "1,-1-2,linear",
        "1,0.5-2,table:1=1,1=2", "1,0.5-2,table:", "1,0.5-inf,linear", "1,0.5-2,power:1e9",
    ),
    "--estimates": ("noisy", "noisy:", "noisy:-1", "noisy:nan", "noisy:1e30", "predicted:x", "oracle:1", "requested", ""),
    "--max-wait": ("0", "1e400d", "-1d", "nan", "1", "3dd", ""),
    "--cluster": (
        "flat:0", "flat:-1", "flat:999999999", "flat:9999999999", "0x1:V100-16", "1x64:V100-16", "999999999x8:V100-16", "1x1:", "1x1:x",
        "flat:", "flat:١", ".", "/dev/null", "\0",
    ),
    "--dispatch": ("x", ""),
    "--format": ("x", "parquet", "slurm", "lsf", ""),
    "--tables": ("log", "nowhere", "."),
    "--map": ("=", "a=b", "submit=runtime", "=submit", "a="),
    "--conditions": ("nowhere", ".", "log", "/dev/null", "\0"),
    "--workload": (".", "/dev/null", "\0", "nowhere/x", "a" * 300, "x.toml", "~"),
}  # fmt: skip


def cluster_cases(seed: int, number: int = 70) -> Iterator[Case]:
    rng = random.Random(f"{seed} clusters")
    for words, text in _damaged_tables(rng, CLUSTER, number):
        policy = rng.choice(POLICIES)
        yield _simulate(f"cluster-{words}", policy, text, to_toml(CONDITIONS | {"quotas": rng.random() < 0.5}).encode(), rng.random() < 0.3)
    for words, text in TEXTS.items():
        yield _simulate(f"cluster-{words}", "fcfs", text, b"", False)


def condition_cases(seed: int, number: int = 110) -> Iterator[Case]:
    rng = random.Random(f"{seed} conditions")
    cluster = to_toml(CLUSTER).encode()
    for words, text in _damaged_tables(rng, CONDITIONS, number):
        yield _simulate(f"conditions-{words}", rng.choice(POLICIES), cluster, text, True)
    for words, text in _damaged_tables(rng, RESERVED, number // 4):
        yield _simulate(f"reservations-{words}", rng.choice(WITHOUT_PREEMPTION), cluster, text, True)
    for words, text in TEXTS.items():
        yield _simulate(f"conditions-{words}", "fcfs", cluster, text, True)


def option_cases() -> Iterator[Case]:
    usual = {"--workload": "log", "--policy": "fcfs+easy", "--cluster": "flat:8"}
    for option, values in OPTIONS.items():
        for number, value in enumerate(values):
            words = [word for pair in (usual | {option: value}).items() for word in pair]
            yield Case(f"option-{option.strip('-')}-{number}={ascii(value)[:30]}", ("simulate", *words), {"log": SWF})


def _simulate(name: str, policy: str, cluster: bytes, conditions: bytes, conditioned: bool) -> Case:
    arguments = ("simulate", "--workload", "log", "--cluster", "c.toml", "--policy", policy)
    more = ("--conditions", "w.toml") if conditioned else ()
    return Case(name, arguments + more, {"log": GPU_LOG, "c.toml": cluster, "w.toml": conditions})


def _damaged_tables(rng: random.Random, data: dict[str, Any], number: int) -> Iterator[tuple[str, bytes]]:
    """Every value is damaged or left out at least once if `number` allows it; every seventh file has damaged text instead."""
    places = list(locations(data))
    rng.shuffle(places)
    for index in range(number):
        place = places[index % len(places)]
        if index % 7 == 6:
            yield f"{index}-text", change_bytes(rng, to_toml(data).encode(), 2)
        elif index % 11 == 10:
            yield f"{index}-without-{'.'.join(map(str, place))}", to_toml(remove_value(data, place)).encode()
        else:
            value = rng.choice(DAMAGED_VALUES)
            yield f"{index}-{in_words(place, value)}", to_toml(change_value(data, place, value)).encode()
