"""Measure decisions: in process, and over the unix socket of a service, with the snapshot sent whole each time.

python benchmarks/live.py [--policy NAME] [--seconds S]     prints JSON; run it on an idle machine
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from queuewise import Snapshot, load_policy
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, WaitingJob

READY_S = 300.0


def snapshot_of(jobs: int, hosts: int) -> Snapshot:
    """Waiting jobs of random sizes on an empty cluster."""
    rng = np.random.default_rng(0)
    shape = NodeShape("n", 8, "A100-40", 64_000, 512 * 1024)
    nodes = tuple(NodeRecord(n, "up", tuple(range(8)), {}, 64_000, 512 * 1024, shape=shape) for n in range(hosts))
    queue = []
    for number in range(jobs):
        seconds, gpus = float(rng.integers(60, 90_000)), int(rng.integers(1, 9))
        job = JobRecord(
            number, float(number), seconds, 1, 1, 1, gpus * 1000, 4000, 1024, 0.0, seconds, user=f"u{number % 5}", predicted=seconds / 2
        )
        queue.append(WaitingJob(job))
    return Snapshot(1000.0, tuple(queue), (), nodes)


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    p50, p99 = (float(value) * 1000 for value in np.quantile(seconds, (0.5, 0.99)))
    return {"decisions": len(seconds), "p50_ms": p50, "p99_ms": p99}


def in_process(policy: str, jobs: int, hosts: int, seconds: float) -> dict[str, float]:
    loaded, snapshot = load_policy(policy), snapshot_of(jobs, hosts)
    loaded.decide(snapshot)
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        loaded.decide(snapshot)
        taken.append(time.perf_counter() - began)
    return quantiles_ms(taken)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def over_socket(policy: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        began = time.perf_counter()
        env = {**os.environ, "QUEUEWISE_LIVE_HOME": folder}
        process = subprocess.Popen(
            [sys.executable, "-m", "queuewise", "serve", "--policy", policy, "--socket", str(path)], env=env, stderr=subprocess.DEVNULL
        )
        try:
            ready = _wait_until_ready(path, began)
            connection, body = UnixConnection(path), snapshot_of(64, 50).to_json().encode()
            taken: list[float] = []
            first_mib = 0.0
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                asked = time.perf_counter()
                connection.request("POST", "/v1/decide", body)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"status {answer.status}")
                taken.append(time.perf_counter() - asked)
                first_mib = first_mib or resident_mib(process.pid)
            rate = len(taken) / seconds
            last_mib = resident_mib(process.pid)
            connection.close()
        finally:
            process.terminate()
            process.wait()
    return {**quantiles_ms(taken), "per_s": rate, "ready_s": ready, "first_mib": first_mib, "last_mib": last_mib}


def _wait_until_ready(path: Path, began: float) -> float:
    while time.perf_counter() < began + READY_S:
        try:
            connection = UnixConnection(path)
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
            connection.close()
            if status == 200:
                return time.perf_counter() - began
        except OSError:
            pass
        time.sleep(0.02)
    raise RuntimeError(f"not ready within {READY_S:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="sjf+easy")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    found = {
        "load": os.getloadavg()[0],
        "64 jobs, 50 hosts": in_process(given.policy, 64, 50, given.seconds),
        "1 job, 1000 hosts": in_process(given.policy, 1, 1000, given.seconds),
        "service, 64 jobs, 50 hosts": over_socket(given.policy, given.seconds),
    }
    print(json.dumps({"policy": given.policy, **found}, indent=2))


if __name__ == "__main__":
    main()
