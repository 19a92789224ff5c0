"""The plugin of LSF's scheduler, loaded by a program that plays mbschd, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise import load_policy, simulate
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies.interface import Start, View
from queuewise.serve.lsf_advice import AdviceServer, advice_text
from queuewise.serve.lsf_plugin_build import HOME, build_plugin
from queuewise.workload.jobs import Workload

PLAYER = Path(__file__).parent / "mbschd_player.c"
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
HOSTS, SLOTS = 50, 16


PATIENT = "-DDEADLINE_NS=20000000000L"  # for what is not about the deadline: a busy machine must not decide the test


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return _build(tmp_path_factory.mktemp("plugin"), ())


@pytest.fixture(scope="module")
def patient_player(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return _build(tmp_path_factory.mktemp("patient"), (PATIENT,))


def _build(folder: Path, flags: tuple[str, ...]) -> list[str]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    build_plugin(folder / "schmod_queuewise.so", None, "cc", (*SANITIZED, *flags))
    program = folder / "mbschd_player"
    warn = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-g", f"-I{HOME}", "-rdynamic")
    subprocess.run(["cc", *warn, *SANITIZED, "-o", str(program), str(PLAYER), "-ldl"], check=True, timeout=120)
    return [str(program), str(folder / "schmod_queuewise.so")]


class Mbschd:
    """The player as a process. `cycle` returns its picks, job -> host, in order."""

    def __init__(self, player: list[str], path: Path) -> None:
        env = {**os.environ, "QUEUEWISE_SOCKET": str(path), "ASAN_OPTIONS": "detect_leaks=1"}
        self._process = subprocess.Popen(player, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        self.longest_ns = 0
        self.counts = (0, 0, 0)

    def cycle(self, jobs: list[tuple[int, int]], free: list[int]) -> dict[int, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        lines = [f"CYCLE {len(jobs)} {len(free)}", *(f"{j} {slots}" for j, slots in jobs), *(f"{h} {n}" for h, n in enumerate(free))]
        self._process.stdin.write("\n".join(lines) + "\n")
        self._process.stdin.flush()
        picks: dict[int, int] = {}
        while True:
            kind, *rest = self._process.stdout.readline().split()
            if kind == "DONE":
                self.longest_ns = max(self.longest_ns, int(rest[0]))
                self.counts = int(rest[1]), int(rest[2]), int(rest[3])
                return picks
            picks[int(rest[0])] = int(rest[1])

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait(20)
        self._process.stdout.close()
        return code


@pytest.fixture
def mbschd(player: list[str], tmp_path: Path) -> Iterator[tuple[Mbschd, Path]]:
    running = Mbschd(player, tmp_path / "s")
    yield running, tmp_path / "s"
    assert running.close() == 0  # the sanitizers found nothing


def recorded_day(number: int) -> tuple[Workload, Cluster]:
    rng = np.random.default_rng(3)
    runtime = rng.lognormal(7.5, 1.2, number)
    workload = Workload(
        submit=np.sort(rng.uniform(0, 86_400 * number / 1000, number)),
        runtime=runtime,
        requested=runtime * rng.uniform(1, 3, number),
        num_tasks=np.ones(number, np.int32),
        cpu_milli=(rng.integers(1, SLOTS + 1, number) * 1000).astype(np.int32),
    )
    return workload, build("lsf", [NodeGroup(max(HOSTS * number // 4000, 3), cpus=SLOTS, mem_gib=1)])


class ThroughPlugin:
    """A decider that asks the plugin: the policy's decision goes to it as advice, and what mbschd picks is started."""

    def __init__(self, policy: str, cluster: Cluster, mbschd: Mbschd, server: AdviceServer) -> None:
        self._policy, self._mbschd, self._server = load_policy(policy, cluster=cluster), mbschd, server
        self.wake_at = np.inf

    def decide(self, view: View) -> list[Start]:
        snapshot = view.snapshot()
        if not snapshot.queue:
            return []
        decided = self._policy.decide(snapshot)
        self.wake_at = np.inf if decided.wake_at is None else decided.wake_at
        self._server.give(advice_text(decided, [one.job.job_id for one in snapshot.queue]))
        jobs = [(int(one.job.job_id), one.job.cpu_milli // 1000) for one in snapshot.queue]
        picks = self._mbschd.cycle(jobs, [(node.free_cpu_milli or 0) // 1000 for node in snapshot.nodes])
        return [Start(view.index(job), {host: 1}) for job, host in picks.items()]


@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_picks_equal_those_of_a_replay(patient_player: list[str], tmp_path: Path, number: int) -> None:
    mbschd, path = Mbschd(patient_player, tmp_path / "s"), tmp_path / "s"
    workload, cluster = recorded_day(number)
    if number == 1000:
        cluster = build("lsf", [NodeGroup(HOSTS, cpus=SLOTS, mem_gib=1)])
    with AdviceServer(path) as server:
        through: Any = ThroughPlugin("sjf+easy", cluster, mbschd, server)
        found = simulate(workload, cluster, through, estimates="requested")
    wanted = simulate(workload, cluster, "sjf+easy", estimates="requested")
    assert mbschd.counts[0] > 0
    assert mbschd.counts[1:] == (0, 0)
    assert mbschd.close() == 0
    np.testing.assert_array_equal(found.start, wanted.start)
    np.testing.assert_array_equal(found.piece_node[np.argsort(found.piece_job)], wanted.piece_node[np.argsort(wanted.piece_job)])


def test_without_a_service_lsf_decides(mbschd: tuple[Mbschd, Path]) -> None:
    assert mbschd[0].cycle([(1, 4), (2, 20), (3, 2)], [4, 16]) == {1: 0, 3: 1}
    assert mbschd[0].counts == (0, 0, 1)


def picks_until_advised(mbschd: Mbschd, jobs: list[tuple[int, int]], free: list[int], advised: dict[int, int]) -> list[dict[int, int]]:
    """What is picked until an answer has come in time. The plugin tries again a second after one that did not."""
    picks: list[dict[int, int]] = []
    for _ in range(20):
        picks += [mbschd.cycle(jobs, free) for _ in range(50)]
        if advised in picks:
            break
        time.sleep(1.1)
    return picks


def test_a_killed_slowed_and_restarted_service(mbschd: tuple[Mbschd, Path]) -> None:
    jobs, free = [(1, 4), (2, 4), (3, 4)], [8, 8]
    advice = b"3 1\n2 1\n1 \nEND\n"
    by_lsf, by_us = {1: 0, 2: 0, 3: 1}, {3: 1, 2: 1}
    deadline_ns = 2_000_000
    with ExitStack() as stack:
        server = stack.enter_context(AdviceServer(mbschd[1]))
        server.give(advice)
        picks = picks_until_advised(mbschd[0], jobs, free, by_us)
        assert by_us in picks
        assert all(one in (by_us, by_lsf) for one in picks)
        server.delay_s = 0.005
        assert all(mbschd[0].cycle(jobs, free) == by_lsf for _ in range(10))
    assert mbschd[0].cycle(jobs, free) == by_lsf  # killed
    with AdviceServer(mbschd[1]) as server:
        server.give(advice)
        time.sleep(1.1)
        assert by_us in picks_until_advised(mbschd[0], jobs, free, by_us)
    assert mbschd[0].counts[1] >= 10
    print(f"longest wait {mbschd[0].longest_ns / 1e6:.2f} ms, deadline {deadline_ns / 1e6:.0f} ms")
    assert mbschd[0].longest_ns < deadline_ns + 50_000_000  # the rest is the machine's own scheduler


HOSTILE = [
    b"", b"END\n" * 3, b"1 0\n", b"x y\nEND\n", b"1 -4\nEND\n", b"99999999999999999999 1\nEND\n", b"1 0,\nEND\n", b"1\nEND\n",
    b"1 5000\nEND\n",
    b"\x00" * 100 + b"\nEND\n", b"1 " + b"0," * 5000 + b"0\nEND\n", b"".join(b"%d \n" % k for k in range(70_000)) + b"END\n",
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers(mbschd: tuple[Mbschd, Path], answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(mbschd[1]))
        listener.listen(1)
        listener.setblocking(False)
        for _ in range(3):
            picks = mbschd[0].cycle([(1, 1), (2, 1)], [1, 1])
            assert set(picks) <= {1, 2}
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            with connection:
                connection.setblocking(False)
                try:
                    connection.sendall(answer)
                except OSError:
                    continue
                mbschd[0].cycle([(1, 1), (2, 1)], [1, 1])
