"""The agent beside LSF, before commands that only take notes: jobs start by themselves without it, and nothing is sent twice."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from queuewise.errors import InputError
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.kill_switch import switch_off
from queuewise.serve.live_guard import GuardLimits, LiveGuard
from queuewise.serve.lsf_advice import END, QUESTION, AdviceServer
from queuewise.serve.lsf_agent import LsfAgent, hand_over, run_command
from queuewise.serve.lsf_snapshot import esub
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory

READING = ("bjobs", "bhosts", "bqueues")


def clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(time.time() + seconds):%Y-%m-%dT%H:%M:%S}"


def job(number: str, **fields: str) -> dict[str, str]:
    usual = {"JOBID": number, "STAT": "PEND", "QUEUE": "normal", "USER": "ann", "SUBMIT_TIME": clock(-60), "RUNTIMELIMIT": "60.0"}
    return {**usual, "SLOTS": "2", "JOB_DESCRIPTION": "queuewise", "SPECIFIED_START_TIME": clock(60), **fields}


@dataclass
class FakeLsf:
    jobs: list[dict[str, str]]
    slots: int = 16
    refuses: str = ""
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> str:
        if command[0] not in READING:
            if self.refuses and self.refuses in command:
                raise InputError(f"{command[0]} failed", hint="")
            self.ran.append(tuple(command))
        rows: dict[str, list[dict[str, str]]] = {
            "bjobs": self.jobs,
            "bhosts": [{"HOST_NAME": "h1", "STATUS": "ok", "MAX": str(self.slots), "NJOBS": "0"}],
            "bqueues": [{"QUEUE_NAME": "normal", "STATUS": "Open:Active"}, {"QUEUE_NAME": "shut", "STATUS": "Open:Inact"}],
        }
        return json.dumps({"RECORDS": rows[command[0]]}) if command[0] in READING else ""


def agent(lsf: FakeLsf, **options: Any) -> LsfAgent:
    return LsfAgent(**{"policy": GuardedPolicy("sjf+easy"), "run": lsf, "mode": "act", "by": "start", **options})


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("start", [("brun", "-m", "h1#2", "2"), ("brun", "-m", "h1#2", "1")]),
        ("resume", [("bmod", "-m", "h1", "-Jd", "queuewise-placed", "-bn", number) for number in ("2", "1")]),
    ],
)
def test_jobs_are_started_where_they_were_put(by: str, wanted: list[tuple[str, ...]]) -> None:
    lsf = FakeLsf([job("1", RUNTIMELIMIT="600.0"), job("2", RUNTIMELIMIT="5.0"), job("3", QUEUE="shut"), job("4", STAT="PSUSP")])
    cycle = agent(lsf, by=by).look()
    assert cycle["outcome"] == "model"
    assert cycle["left_alone"] == {"3": "queue shut is not steered", "4": "it is held by its user or an administrator"}
    assert lsf.ran == wanted
    lsf.ran.clear()
    assert agent(lsf, by=by, mode="shadow").look()["commands"]
    assert lsf.ran == []


def test_jobs_go_on_waiting_only_if_they_will_start() -> None:
    lsf = FakeLsf([job("1", STAT="RUN", EXEC_HOST="16*h1", SLOTS="16"), job("2"), job("3", SLOTS="99")])
    cycle = agent(lsf).look()
    assert [(one[1], one[-1]) for one in lsf.ran] == [("-bn", "3"), ("-b", "2")]
    assert cycle["left_alone"] == {"3": "the engine sees no start for it"}


def test_the_switch_gives_every_job_back(tmp_path: Path) -> None:
    lsf = FakeLsf([job("1"), job("2", JOB_DESCRIPTION="queuewise-placed"), job("3", STAT="PSUSP"), job("4", JOB_DESCRIPTION="mine")])
    switch_off(tmp_path)
    assert agent(lsf, home=tmp_path).look()["outcome"] == "off"
    released = ("-bn", "-Jd", "queuewise-released")
    assert lsf.ran == [("bmod", *released, "1"), ("bmod", "-mn", *released, "2"), ("bmod", *released, "3"), ("bresume", "3")]


def test_a_job_that_does_not_start_where_it_was_put_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lsf = FakeLsf([job("1", JOB_DESCRIPTION="queuewise-placed", ASK_HOSTS="h1")])
    one = agent(lsf, by="resume")
    one.look()
    assert lsf.ran == []
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 100)
    one.look()
    assert lsf.ran == [("bmod", "-mn", "-bn", "-Jd", "queuewise-released", "1")]


def test_an_order_is_sent_once_and_then_only_what_has_changed() -> None:
    lsf = FakeLsf([job("1", RUNTIMELIMIT="600.0"), job("2", RUNTIMELIMIT="5.0"), job("3", RUNTIMELIMIT="60.0")], slots=2)
    one = agent(lsf, by="order")
    one.look()
    assert lsf.ran == [("btop", "2", "1"), ("btop", "3", "2"), ("btop", "1", "3")]
    one.look()
    assert len(lsf.ran) == 3
    lsf.jobs.append(job("4", RUNTIMELIMIT="300.0"))
    lsf.refuses = "4"
    assert "btop failed" in one.look()["problem"]
    lsf.refuses = ""
    one.look()
    one.look()
    assert [command[1:] for command in lsf.ran[3:]] == [("4", "3"), ("1", "4")]


def test_the_guard_and_the_switch_limit_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lsf = FakeLsf([job(str(number)) for number in range(1, 6)])
    guard = LiveGuard("sjf+easy", "fcfs+easy", GuardLimits(actions_per_minute=3))
    agent(lsf, guard=guard).look()
    assert len(lsf.ran) == 3
    lsf.ran.clear()
    real = FakeLsf.__call__
    monkeypatch.setattr(FakeLsf, "__call__", lambda self, command: (command[0] == "brun" and switch_off(tmp_path), real(self, command))[1])
    assert "stopped before 4 of 5 commands" in agent(lsf, home=tmp_path).look()["problem"]
    assert len(lsf.ran) == 1


def test_whatever_happens_the_next_look_goes_on() -> None:
    assert LsfAgent(GuardedPolicy("fcfs"), run=lambda command: "nonsense").look()["outcome"] == "unreachable"
    assert LsfAgent(GuardedPolicy("fcfs"), run=lambda command: str(1 / 0)).look()["outcome"] == "failed"
    assert run_command(["printf", r"caf\351"]) == "caf\ufffd"


def test_the_esub_sets_a_begin_time_and_leaves_other_jobs_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "esub.queuewise"
    script.write_text(esub(120))

    def changes(parameters: str) -> str:
        (tmp_path / "parm").write_text(parameters)
        (tmp_path / "modify").write_text("")
        env = {"LSB_SUB_PARM_FILE": str(tmp_path / "parm"), "LSB_SUB_MODIFY_FILE": str(tmp_path / "modify"), "PATH": "/usr/bin:/bin"}
        subprocess.run(["sh", str(script)], env=env, check=True, timeout=10)
        return (tmp_path / "modify").read_text()

    first, second = changes('LSB_SUB_QUEUE="normal"\n').splitlines()
    assert abs(int(first.removeprefix("LSB_SUB_BEGIN_TIME=")) - time.time() - 120) < 10
    assert second == 'LSB_SUB_JOB_DESCRIPTION="queuewise-grace-120"'
    for own in ("LSB_SUB_HOLD=Y", "LSB_SUB_BEGIN_TIME=1900000000", 'LSB_SUB_RSV_ID="user1#0"', 'LSB_SUB_JOB_DESCRIPTION="mine"'):
        assert changes(own) == ""


def test_advice_replaces_only_a_dead_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(InputError, match="is no socket"), AdviceServer(path):
        pass
    assert path.read_text() == "precious"
    path.unlink()
    with AdviceServer(path), pytest.raises(InputError, match="another service"), AdviceServer(path):
        pass


def test_wise_decides_by_the_limits_while_nothing_is_known() -> None:
    lsf = FakeLsf([job("1", RUNTIMELIMIT="600.0", SLOTS="16"), job("2", RUNTIMELIMIT="5.0", SLOTS="16")])
    cycle = agent(lsf, policy=GuardedPolicy("wise")).look()
    assert (cycle["outcome"], cycle["policy"], cycle["problem"]) == ("model", "wise", "")
    assert [start["job_id"] for start in cycle["starts"]] == ["2"]


def test_wise_goes_by_what_jobs_like_these_took() -> None:
    lsf = FakeLsf([job("1", RUNTIMELIMIT="600.0", SLOTS="16"), job("2", RUNTIMELIMIT="60.0", SLOTS="16", USER="bob")])
    runs = [EndedRun("ann", "", 16, 36_000.0, 20.0, float(k)) for k in range(30)]
    runs += [EndedRun("bob", "", 16, 3_600.0, 3_500.0, float(k)) for k in range(30)]
    cycle = agent(lsf, policy=GuardedPolicy("wise"), history=RuntimeHistory(runs)).look()
    assert [start["job_id"] for start in cycle["starts"]] == ["1"]


def test_everything_is_given_back_without_an_agent() -> None:
    lsf = FakeLsf([
        job("1"), job("2", JOB_DESCRIPTION="queuewise-grace-600"), job("3", JOB_DESCRIPTION="queuewise-placed"),
        job("4", JOB_DESCRIPTION=""),
        job("5", JOB_DESCRIPTION="queuewise-grace-60", SPECIFIED_START_TIME=clock(86_400)), job("6", JOB_DESCRIPTION="queuewise-released"),
    ])  # fmt: skip
    assert hand_over(lsf) == "3 jobs were given back to LSF"
    assert [command[-1] for command in lsf.ran] == ["1", "2", "3"]


def test_a_begin_time_that_a_user_sets_later_stays() -> None:
    lsf = FakeLsf([job("1", JOB_DESCRIPTION="queuewise-grace-60", SPECIFIED_START_TIME=clock(3600))])
    assert agent(lsf).look()["left_alone"] == {"1": "its user has set a begin time"}
    assert not lsf.ran


def test_begin_times_are_renewed_by_the_grace_of_the_mark() -> None:
    marked = job("2", JOB_DESCRIPTION="queuewise-grace-7200", SPECIFIED_START_TIME=clock(100))
    lsf = FakeLsf([job("1", STAT="RUN", SLOTS="16", EXEC_HOST="16*h1", START_TIME=clock(-50)), marked])
    agent(lsf).look()
    [command] = lsf.ran
    assert command[:2] == ("bmod", "-b")
    assert abs(datetime.strptime(command[2], "%Y:%m:%d:%H:%M").timestamp() - time.time() - 7200) < 90


def test_advice_ends_with_the_switch_while_the_adviser_hangs(tmp_path: Path) -> None:
    with AdviceServer(tmp_path / "a.sock", home=tmp_path) as server, socket.socket(socket.AF_UNIX) as plugin:
        server.give(b"1 0\nEND\n")
        plugin.connect(str(tmp_path / "a.sock"))
        plugin.sendall(QUESTION)
        assert plugin.recv(100) == b"1 0\nEND\n"
        switch_off(tmp_path)
        plugin.sendall(QUESTION)
        assert plugin.recv(100) == END


@pytest.mark.parametrize(
    ("fields", "left_alone"),
    [
        ({"JOB_DESCRIPTION": "queuewise-grace-" + "9" * 30}, "its user has set a begin time"),
        ({"JOB_DESCRIPTION": "queuewise-grace-999999999"}, "its user has set a begin time"),
        ({"MEMLIMIT": "9999999 Gbytes", "SLOTS": "1"}, "it has cpu_milli 1000 and mem_mib 10239998976"),
        ({"SLOTS": "99999999999"}, "it has num_tasks 99999999999"),
        ({"GPU_NUM": "99999999"}, "it has gpu_milli 99999999000"),
    ],
)
def test_no_user_can_stop_the_agent(fields: dict[str, str], left_alone: str) -> None:
    large = job("1", **{"SLOTS": "17", "SPECIFIED_START_TIME": clock(3600), **fields})  # 17 slots do not fit
    if "JOB_DESCRIPTION" not in fields:
        large["SPECIFIED_START_TIME"] = clock(60)
    running = job("2", STAT="RUN", EXEC_HOST="h1", SLOTS="1", MEMLIMIT="9999999 Gbytes", START_TIME=clock(-30))
    lsf = FakeLsf([large, running, job("3")])
    cycle = agent(lsf).look()
    assert cycle["outcome"] == "model", cycle["problem"]
    assert cycle["left_alone"]["1"].startswith(left_alone)
    assert lsf.ran == [("brun", "-m", "h1#2", "3")]


def test_advice_goes_on_when_a_connection_cannot_be_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []
    accept = socket.socket.accept

    def few_files(listener: socket.socket) -> Any:
        if not refused:
            refused.append(1)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", few_files)
    with AdviceServer(tmp_path / "s") as server, socket.socket(socket.AF_UNIX) as client:
        server.give(b"1 h1\n" + END)
        client.connect(str(tmp_path / "s"))
        client.settimeout(5)
        client.sendall(QUESTION)
        assert client.recv(100) == b"1 h1\n" + END
    assert refused


def test_the_socket_of_advice_that_came_later_stays(tmp_path: Path) -> None:
    with AdviceServer(tmp_path / "s"):
        (tmp_path / "s").unlink()
        later = socket.socket(socket.AF_UNIX)
        later.bind(str(tmp_path / "s"))
    assert (tmp_path / "s").exists()
    later.close()
