"""Numbers of any length where files have whole numbers: identifiers, lists of nodes, what a node has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fuzz.cases import Case

DIGITS = (9, 20, 5_000)  # Python converts no number of more than 4300 digits
NODE = {"CPUTot": "8", "RealMemory": "1000", "Gres": "gpu:a100:2", "State": "IDLE", "Partitions": "p"}
SINFO: dict[str, Any] = {"name": "n1", "cpus": 8, "real_memory": 1000, "gres": "gpu:a100:2", "state": ["IDLE"], "partitions": ["p"]}
LABELS = "submit,runtime,gpus,user,group,partition,job_name,job_id"
SACCT = "JobID|Submit|Start|End|State|AllocTRES|NodeList|User"
JOB = "1|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T01:00:00|COMPLETED"
LISTS = ("n[1-{0}]", "n[{0}]", "n[{0}-{0}]", "r[1-60000]n[1-60000]", ",".join(["n[1-60000]"] * 200), "n" + "[1-2]" * 3_000)


def number_cases() -> Iterator[Case]:
    for digits in DIGITS:
        number = "9" * digits
        for column in range(3, 8):
            cells = ["0", "10", "1"] + [number if place == column else "1" for place in range(3, 8)]
            log = f"{LABELS}\n{','.join(cells)}\n".encode()
            yield Case(f"number-{digits}-{LABELS.split(',')[column]}", ("workload", "convert", "l.csv", "--out", "l.swf"), {"l.csv": log})
        for name, value in (("CPUTot", number), ("RealMemory", number), ("Gres", f"gpu:a100:{number}")):
            text = " ".join(f"{key}={field}" for key, field in ({"NodeName": "n1"} | NODE | {name: value}).items())
            yield _described(f"scontrol-{digits}-{name}", "from-slurm", text)
        yield Case(f"number-{digits}-add-nodes", ("simulate", "--workload", "bursty", "--cluster", "2x4:V100-16", "--policy", "fcfs",
                                                  "--add-nodes", f"{number}:V100-16"))  # fmt: skip
        for place, nodes in enumerate(LISTS[: 3 if digits < DIGITS[-1] else None]):
            yield _described(f"nodes-{digits}-{place}", "from-log", f"{SACCT}\n{JOB}|cpu=4,node=1|{nodes.format(number)}|a\n")
    for wrong in (10**30, float("inf"), float("nan"), -1, "x", [1], {"set": True, "number": float("inf")}):
        for key in ("cpus", "real_memory", "gres", "name", "state", "partitions"):
            yield _described(f"sinfo-{key}={wrong!r}", "from-slurm", json.dumps({"nodes": [SINFO | {key: wrong}]}))


def _described(name: str, source: str, text: str) -> Case:
    options = ("--format", "slurm") if source == "from-log" else ()
    return Case(f"number-{name}", ("clusters", source, "given", "--out", "o.toml", *options), {"given": text.encode()})
