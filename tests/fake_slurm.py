"""Commands of Slurm that answer from lists of rows and note what is changed, in place of real ones."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

from queuewise.serve.slurm_control import SlurmCommands

NOW = 1_790_000_000  # tests give it to the clock of their agents


def number(value: int | None, newer: bool) -> Any:
    """A number as 22.05 or as later releases write it."""
    if not newer:
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def node(name: str, *, newer: bool = False, **fields: Any) -> dict[str, Any]:
    usual = {
        "name": name, "cpus": 16, "real_memory": number(64_000, False), "gres": "gpu:a100:4", "gres_used": "gpu:a100:0(IDX:N/A)",
        "state": ["IDLE"] if newer else "idle", "state_flags": [], "alloc_cpus": 0, "alloc_memory": 0, "partitions": ["main"],
        "active_features": [] if newer else "", "weight": 1, "threads": 1,
    }  # fmt: skip
    return {**usual, **fields}


def row(job_id: int, *, newer: bool = False, ours: bool = True, **fields: Any) -> dict[str, Any]:
    """A waiting job, held back by the submit plugin."""
    usual = {
        "job_id": job_id, "job_state": ["PENDING"] if newer else "PENDING", "state_reason": "BeginTime" if ours else "Priority",
        "partition": "main", "user_name": "ann", "account": "a", "qos": "normal", "name": "train", "priority": number(100, newer),
        "submit_time": number(NOW - 60, newer), "eligible_time": number(NOW + 60 if ours else NOW - 60, newer),
        "start_time": number(0, newer), "end_time": number(0, newer), "time_limit": number(60, newer), "node_count": number(1, newer),
        "max_nodes": number(1, newer), "tasks": number(1, newer), "cpus": number(1, newer), "cpus_per_task": number(1, newer),
        "memory_per_node": number(100, newer), "memory_per_cpu": number(None, newer) if newer else None,
        "tres_per_node": "gres/gpu:1" if newer else "gres:gpu:1", "array_job_id": number(0, newer),
        "array_task_id": number(None, newer), "admin_comment": "queuewise grace" if ours else "", "het_job_id": number(0, newer),
        "site_factor": 0,
    }  # fmt: skip
    return {**usual, **fields}


@dataclass
class FakeSlurm(SlurmCommands):
    rows: list[dict[str, Any]] = field(default_factory=list)
    machines: list[dict[str, Any]] = field(default_factory=lambda: [node("n1"), node("n2")])
    sprio: str = ""
    config: str = "SelectTypeParameters    = CR_CORE"
    refuse: str = ""  # changes that contain it
    obeys: bool = True
    sent: list[str] = field(default_factory=list)
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        if stdin is not None:
            return self._change(stdin)
        answers = {
            "squeue": json.dumps({"jobs": self.rows}), "sinfo": json.dumps({"nodes": self.machines}), "sprio": self.sprio,
            "scontrol show reservation -o": "No reservations in the system", "scontrol show config": self.config,
        }  # fmt: skip
        return subprocess.CompletedProcess(command, 0, answers.get(" ".join(command), answers.get(command[0], "")), "")

    def _change(self, stdin: str) -> subprocess.CompletedProcess[str]:
        changes = [line.removeprefix("update ") for line in stdin.splitlines() if line.startswith("update ")]
        complaints = [f"slurm_update error: {one}" for one in changes if self.refuse and self.refuse in one]
        for change in changes:
            if not self.refuse or self.refuse not in change:
                self.sent.append(change)
                if self.obeys:
                    self._obey(change)
        return subprocess.CompletedProcess((), 1 if complaints else 0, "scontrol: " * len(changes), "\n".join(complaints))

    def _obey(self, change: str) -> None:
        """Only what tests look at."""
        fields = dict(re.findall(r'(\w+)=("[^"]*"|\S*)', change))
        for one in self.rows:
            if str(one["job_id"]) in fields["JobId"].split(","):
                if "AdminComment" in fields:
                    one["admin_comment"] = fields["AdminComment"]  # with its quotes, as the real one does
                if "SiteFactor" in fields and isinstance(one["priority"], int):
                    one["priority"] += int(fields["SiteFactor"]) - one["site_factor"]
                    one["site_factor"] = int(fields["SiteFactor"])
                if "ReqNodeList" in fields:
                    one["required_nodes"] = fields["ReqNodeList"]
