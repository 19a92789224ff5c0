"""If somebody is killed in the middle, no job of a real Slurm is lost or stuck: agents, the service, slurmctld and a slurmd."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from queuewise.serve.slurm_control import start_change
from slurm_bench import Bench, Starts, command, environment

pytestmark = pytest.mark.live


def act(bench: Bench, *options: str) -> subprocess.Popen[bytes]:
    """An agent that starts jobs, as a process of its own."""
    start = command(bench, "slurm", "--mode", "act", "--by", "start", "--policy", "sjf+easy", "--interval", "0.3", *options)
    return subprocess.Popen(start, env=environment(bench), stderr=subprocess.DEVNULL)


def wait_for(bench: Bench, ids: list[str], seconds: float) -> None:
    """All jobs have run to their end, and nobody has helped."""
    deadline = time.monotonic() + seconds
    while bench.states(ids) != {"COMPLETED"}:
        assert time.monotonic() < deadline, bench.slurm.run("squeue")
        assert bench.states(ids) <= {"PENDING", "RUNNING", "COMPLETING", "COMPLETED"}
        time.sleep(0.5)


@pytest.mark.parametrize("victim", ["agent", "slurmctld", "a100n1"])
def test_after_a_kill_no_job_is_lost_and_none_is_stuck(start_slurm: Starts, victim: str) -> None:
    """The agent is killed in the middle, alone or after a daemon of Slurm, and does not come back."""
    bench = start_slurm(grace_s=20)
    ids = bench.submit_many(40, (1.0, 3.0))
    agent = act(bench)
    time.sleep(6)
    if victim != "agent":
        bench.slurm.kill(victim)
        time.sleep(2)
        bench.slurm.start_controller() if victim == "slurmctld" else bench.slurm.start_node(victim)
        time.sleep(3)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    wait_for(bench, ids, 120)


def test_an_agent_that_comes_back_picks_up_what_a_killed_one_has_left(start_slurm: Starts) -> None:
    bench = start_slurm(grace_s=600)
    ids = bench.submit_many(40, (1.0, 2.0))
    for _ in range(3):
        agent = act(bench)
        time.sleep(5)
        agent.kill()
        agent.wait()
    agent = act(bench)
    try:
        wait_for(bench, ids, 120)  # long before the grace ends
    finally:
        agent.terminate()
        agent.wait()


def test_a_place_is_given_back_though_the_agent_is_dead_and_the_node_has_left(start_slurm: Starts) -> None:
    """A job is left as by an agent that is killed between placing it and its start, on a node that has left before."""
    bench = start_slurm()
    first = bench.submit_many(5, (0.3, 0.6))
    agent = act(bench)
    wait_for(bench, first, 60)
    agent.send_signal(signal.SIGSTOP)  # it sees nothing of what follows
    bench.slurm.run("scontrol", "update", "NodeName=a100n1", "State=DRAIN", "Reason=test")
    job = str(bench.slurm.submit(0.5, "-N1", "--gres=gpu:a100:8", "--mem=100", "--time=5"))
    [left] = [one for one in bench.commands.jobs() if one.job_id == job]
    assert bench.commands.update([start_change(left, job, ["a100n1"], 5)]) == []
    agent.kill()
    agent.wait()
    time.sleep(2)
    assert bench.states([job]) == {"PENDING"}
    assert bench.rows()[job]["required_nodes"] == "a100n1"
    wait_for(bench, [job], 60)
    assert bench.rows()[job]["nodes"] == "a100n2"


def test_the_order_of_a_dead_agent_is_taken_back(start_slurm: Starts) -> None:
    bench = start_slurm(grace_s=3)
    bench.slurm.submit(60, "-N6", "--exclusive", "--time=10", "--begin=now")
    time.sleep(4)
    ids = [str(bench.slurm.submit(0.5, "-N1", "--gres=gpu:a100:8", "--mem=100", f"--time={minutes}")) for minutes in (50, 10, 40)]
    by_priority = command(bench, "slurm", "--mode", "act", "--policy", "sjf+easy", "--interval", "0.3")
    agent = subprocess.Popen(by_priority, env=environment(bench), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(bench.commands.site_factors().values()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    agent.kill()
    agent.wait()
    while any(bench.commands.site_factors().values()):
        assert time.monotonic() < deadline + 30
        time.sleep(0.2)
    assert bench.states(ids) == {"PENDING"}


def test_a_service_that_is_killed_is_asked_again_when_it_is_back(start_slurm: Starts) -> None:
    """The same question has the same answer again; between, there is no answer and nothing else happens."""
    pytest.importorskip("uvicorn")
    bench = start_slurm(grace_s=20)
    ids = bench.submit_many(10)
    path = bench.slurm.home / "q.sock"
    state = bench.agent().look()
    assert state.outcome == "model"
    serve = command(bench, "serve", "--policy", "sjf+easy", "--socket", str(path))
    snapshot = subprocess.run(
        command(bench, "slurm", "save", str(bench.slurm.home / "s.json")),
        env=environment(bench),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert snapshot.returncode == 0, snapshot.stderr
    body = (bench.slurm.home / "s.json").read_bytes()
    answers = []
    for _ in range(2):
        service = subprocess.Popen(serve, env=environment(bench), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while (found := asked(path, body)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        answers.append({name: found[name] for name in ("starts", "stops", "wake_at", "outcome")})
        service.kill()
        service.wait()
        assert asked(path, body) is None
    assert answers[0] == answers[1]
    wait_for(bench, ids, 120)


def asked(path: Path, body: bytes) -> Any:
    """The decision of a service; None if there is none."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("POST", "/v1/decide", body)
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()
