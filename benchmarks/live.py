"""Measure decisions: in process, and over the unix socket of a service, with the snapshot sent whole each time.

python benchmarks/live.py [--policy NAME] [--kernel RUN] [--seconds S] [--million] [--results]
python benchmarks/live.py --render                          write the table of docs/live.md from benchmarks/results/live.json

Run it on an idle machine. Server and client have a core each, if there are two. A rate is that of requests sent one after another on two
connections; then requests are sent at half of it, on one connection, and each answer is timed from when its request was due. --kernel
measures the service with a trained network, too; --million lets a service decide a million times, and looks at its memory. Snapshots differ
from each other and are objects of their own. With --results, what was measured is kept in benchmarks/results/live.json; else it is printed.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from render_performance import REPOSITORY, RESULTS, table

from queuewise import Snapshot, load_policy
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, WaitingJob
from queuewise.runs import write_text

READY_S = 300.0
DIFFERENT = 50  # snapshots
LOOKS = 20  # at the memory of a service
CONNECTIONS = 2
MILLION = 1_000_000
KEPT = RESULTS / "live.json"
PAGE = REPOSITORY / "docs" / "live.md"


def snapshot_of(jobs: int, hosts: int, seed: int = 0) -> Snapshot:
    """Waiting jobs of random sizes on an empty cluster."""
    rng = np.random.default_rng(seed)
    shape = NodeShape("n", 8, "A100-40", 64_000, 512 * 1024)
    nodes = tuple(NodeRecord(n, "up", tuple(range(8)), {}, 64_000, 512 * 1024, shape=replace(shape, name=f"n{n}")) for n in range(hosts))
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
    loaded, snapshots = load_policy(policy), [snapshot_of(jobs, hosts, seed) for seed in range(DIFFERENT)]
    for snapshot in snapshots:
        loaded.decide(snapshot)
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        snapshot = snapshots[len(taken) % DIFFERENT]
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


class Asker:
    """One connection that sends requests made before, and reads answers. It takes little of the client's core."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._socket.connect(str(path))

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def read(self) -> None:
        """Read an answer. A RuntimeError if it is no decision of the policy itself."""
        found = b""
        while (end := found.find(b"\r\n\r\n")) < 0 or len(found) < end + 4 + _length(found[:end]):
            part = self._socket.recv(1 << 20)
            if not part:
                raise RuntimeError("the service has closed the connection")
            found += part
        if not found.startswith(b"HTTP/1.1 200") or b'"outcome":"model"' not in found:
            raise RuntimeError(f"the service answered {found[:300]!r}")

    def close(self) -> None:
        self._socket.close()


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


def requests() -> list[bytes]:
    bodies = [snapshot_of(64, 50, seed).to_json().encode() for seed in range(DIFFERENT)]
    return [b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body for body in bodies]


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def maps_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def cores() -> tuple[set[int], set[int]]:
    """Of the server and of the client: different ones, if there are two."""
    mine = sorted(os.sched_getaffinity(0))
    return {mine[0]}, {mine[-1]}


@contextmanager
def service(policy: str) -> Iterator[tuple[Path, int, float]]:
    """A service on a core of its own: its socket, its process and how long it took to be ready."""
    of_server, of_client = cores()
    before = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        path = Path(folder) / "s"
        began = time.perf_counter()
        env = {**os.environ, "QUEUEWISE_LIVE_HOME": folder}
        os.sched_setaffinity(0, of_server)  # the child inherits it
        process = subprocess.Popen(
            [sys.executable, "-m", "queuewise", "serve", "--policy", policy, "--socket", str(path)], env=env, stderr=log
        )
        os.sched_setaffinity(0, of_client)
        try:
            yield path, process.pid, _wait_until_ready(path, began, process, Path(log.name))
        finally:
            process.terminate()
            process.wait()
            os.sched_setaffinity(0, before)


def _wait_until_ready(path: Path, began: float, process: subprocess.Popen[bytes], log: Path) -> float:
    while time.perf_counter() < began + READY_S:
        if process.poll() is not None:
            raise RuntimeError(f"the service has ended with code {process.returncode}:\n{log.read_text()}")
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
    raise RuntimeError(f"not ready within {READY_S:.0f} s:\n{log.read_text()}")


def as_fast_as_possible(path: Path, sent: list[bytes], goes_on: Callable[[int], bool]) -> tuple[int, float]:
    """Decisions and seconds. The next request of a connection is sent when the last one is answered, while the others are decided."""
    askers = [Asker(path) for _ in range(CONNECTIONS)]
    number, began = 0, time.perf_counter()
    for at, asker in enumerate(askers):
        asker.send(sent[at])
    while goes_on(number):
        asker = askers[number % CONNECTIONS]
        asker.read()
        number += 1
        asker.send(sent[number % len(sent)])
    seconds = time.perf_counter() - began
    for asker in askers:
        asker.close()
    return number, seconds


def paced(path: Path, sent: list[bytes], per_s: float, seconds: float) -> dict[str, float]:
    """How long answers take from when their requests are due."""
    asker, taken = Asker(path), list[float]()
    began = time.perf_counter()
    while (due := began + len(taken) / per_s) < began + seconds:
        while time.perf_counter() < due:
            pass
        asker.send(sent[len(taken) % len(sent)])
        asker.read()
        taken.append(time.perf_counter() - due)
    asker.close()
    return {"per_s": per_s, **quantiles_ms(taken)}


def over_socket(policy: str, seconds: float) -> dict[str, Any]:
    sent = requests()
    with service(policy) as (path, pid, ready_s):
        as_fast_as_possible(path, sent, lambda number: number < 2 * DIFFERENT)
        until = time.perf_counter() + seconds
        number, taken = as_fast_as_possible(path, sent, lambda number: time.perf_counter() < until)
        rate = number / taken
        at_half = paced(path, sent, rate / 2, seconds)
        found = {"policy": policy, "decisions": number, "per_s": rate, "at half the rate": at_half, "ready_s": ready_s}
        return {**found, "resident_mib": resident_mib(pid), "torch": maps_torch(pid)}


def a_million(policy: str) -> dict[str, Any]:
    """The memory of a service over a million decisions, in twenty equal steps after the first."""
    sent, step = requests(), MILLION // LOOKS
    with service(policy) as (path, pid, _):
        memory = []
        for _ in range(LOOKS):
            as_fast_as_possible(path, sent, lambda number: number < step)
            memory.append(resident_mib(pid))
    return {"policy": policy, "decisions": MILLION, "resident_mib": memory}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "load_average": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        "64 jobs, 50 hosts": {"policy": given.policy, **in_process(given.policy, 64, 50, given.seconds)},
        "1 job, 1000 hosts": {"policy": given.policy, **in_process(given.policy, 1, 1000, given.seconds)},
        "service": over_socket(given.policy, given.seconds),
    }
    if given.kernel is not None:
        found["service, kernel"] = over_socket(f"model:{given.kernel}", given.seconds)
    if given.million:
        found["million"] = a_million(given.policy)
    return found


def rendered(found: dict[str, Any]) -> str:
    """The table of docs/live.md."""
    rows = [[f"in process, {name}", found[name]["policy"], "", f"{found[name]['p99_ms']:.2f}"] for name in found if "host" in name]
    for name, label in (("service", "service, 64 jobs, 50 hosts"), ("service, kernel", "the same with a kernel network")):
        if name in found:
            one = found[name]
            policy = one["policy"] if name == "service" else "model:RUN"
            rows.append([label, policy, f"{one['per_s']:,.0f}", f"{one['at half the rate']['p99_ms']:.2f}"])
    service_facts = found["service"]
    said = [
        f"The service was ready after {service_facts['ready_s']:.1f} s, had {service_facts['resident_mib']:.0f} MiB and "
        + ("had loaded torch." if service_facts["torch"] else "had not loaded torch.")
    ]
    if "million" in found:
        memory = found["million"]["resident_mib"]
        said.append(f"Over a million decisions, its memory went from {memory[0]:.0f} to {memory[-1]:.0f} MiB.")
    said.append(f"Load average at the start: {found['load_average']:.1f}, {found['cores']} cores.")
    cells = [[place, f"`{policy}`", rate, p99] for place, policy, rate, p99 in rows]
    return "\n\n".join([table(["decisions", "policy", "per second", "p99, ms"], cells, left=2), "\n".join(said)])


def render() -> None:
    begin, end = "<!-- measured -->", "<!-- /measured -->"
    page = PAGE.read_text()
    before, _, rest = page.partition(begin)
    write_text(PAGE, f"{before}{begin}\n{rendered(json.loads(KEPT.read_text()))}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="sjf+easy")
    parser.add_argument("--kernel", help="run folder or file of a trained network of the kind kernel")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--results", action="store_true")
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    if given.render:
        render()
        return
    found = json.dumps(measure(given), indent=2)
    if given.results:
        write_text(KEPT, found + "\n")
    else:
        print(found)


if __name__ == "__main__":
    main()
