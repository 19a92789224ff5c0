"""The agent and a real Slurm: orders and places, shadow, kills, full disks, clocks, bursts and nodes that must not be used."""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from queuewise.serve.audit_log import AuditLog
from queuewise.serve.kill_switch import switch_off
from slurm_bench import FIFTY_NODES, Bench, Starts, command, environment

pytestmark = pytest.mark.live


def test_orders_and_places_of_100_jobs_are_obeyed_exactly(start_slurm: Starts) -> None:
    bench = start_slurm()
    ids = bench.submit_many(100)
    told = bench.drive(bench.agent(), ids, seconds=240)
    rows = bench.rows()
    assert len(told) == 100
    assert {job: tuple(rows[job]["nodes"].split(",")) for job in ids} == dict(told)
    assert bench.order_of_starts() == [job for job, _ in told]


def test_by_priority_sets_the_order_and_leaves_starts_to_slurm(start_slurm: Starts) -> None:
    bench = start_slurm(grace_s=3)
    blocker = str(bench.slurm.submit(6, "-N6", "--exclusive", "--time=10", "--begin=now"))
    time.sleep(4)
    ids = [str(bench.slurm.submit(0.5, "-N1", "--gres=gpu:a100:8", "--mem=100", f"--time={minutes}")) for minutes in (50, 10, 40, 20, 30)]
    agent = bench.agent("sjf", by="priority")
    agent.look()
    wanted = [ids[k] for k in (1, 3, 4, 2, 0)]
    rows = bench.rows()
    assert sorted(ids, key=lambda job: -rows[job]["priority"]) == wanted
    deadline = time.monotonic() + 60
    while bench.states([*ids, blocker]) != {"COMPLETED"}:
        agent.look()
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert [job for job in bench.order_of_starts() if job in ids] == wanted


def test_shadow_changes_nothing(start_slurm: Starts) -> None:
    bench = start_slurm()
    ids = bench.submit_many(30, (1.0, 3.0))

    def table() -> dict[str, Any]:
        by_slurm = ("last_sched_evaluation", "accrue_time")  # it changes these by itself
        return {job: {key: value for key, value in row.items() if key not in by_slurm} for job, row in bench.rows().items()}

    before = table()
    done = subprocess.run(
        command(bench, "slurm", "--mode", "shadow", "--once", "--json", "--policy", "sjf+easy"),
        env=environment(bench), capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["mode"] == "shadow"
    assert found["starts"]
    assert set(found["expected_starts"]) == set(ids)
    assert table() == before


@pytest.mark.parametrize("begin", ["now+1day", "now+2minutes"])
def test_a_begin_time_that_a_user_sets_later_stays(start_slurm: Starts, tmp_path: Path, begin: str) -> None:
    """Also one that is sooner than the grace; neither the agent nor the switch starts the job before."""
    bench = start_slurm()
    mine = str(bench.slurm.submit(0.5, "-N1", "--gres=gpu:1", "--mem=100", "--time=5"))
    theirs = submitted_by_a_user(bench, tmp_path, begin)
    home = bench.slurm.home / "live"
    agent = bench.agent(home=home)
    deadline = time.monotonic() + 60
    while bench.states([mine]) != {"COMPLETED"}:
        cycle = agent.look()
        assert time.monotonic() < deadline
        assert theirs not in {start["job_id"] for start in cycle.starts}
        time.sleep(0.2)
    assert bench.agent().look().left_alone == {theirs: "its user has set a begin time"}
    wanted = bench.rows()[theirs]["eligible_time"]
    assert wanted > time.time() + 60
    switch_off(home)
    assert agent.look().commands == ()
    assert (bench.states([theirs]), bench.rows()[theirs]["eligible_time"]) == ({"PENDING"}, wanted)


def submitted_by_a_user(bench: Bench, tmp_path: Path, begin: str) -> str:
    """A job whose begin time its owner, who is no administrator where we can be another, changes after its submission."""
    script = "#!/bin/sh\nexec sleep 0.5\n"
    options = ("--parsable", "--output=/dev/null", "--chdir=/tmp", "-N1", "--gres=gpu:1", "--mem=100", "--time=5")
    owner: dict[str, Any] = {}
    if os.getuid() == 0:
        found = pwd.getpwnam("nobody")
        owner = {"user": found.pw_uid, "group": found.pw_gid}
        for folder in (bench.slurm.home, tmp_path, *list(tmp_path.parents)[:-2]):
            folder.chmod(folder.stat().st_mode | 0o055)

    def run(*words: str, text: str | None = None) -> str:
        done = subprocess.run(words, env=bench.slurm.env, input=text, capture_output=True, text=True, check=True, timeout=60, **owner)
        return str(done.stdout).strip()

    job = run("sbatch", *options, text=script)
    assert str(bench.rows()[job]["admin_comment"]).startswith("queuewise grace 300 until ")
    run("scontrol", "update", f"JobId={job}", f"StartTime={begin}")
    return job


def test_a_full_disk_stops_actions_and_nothing_else(start_slurm: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = start_slurm(grace_s=8)
    ids = bench.submit_many(10)
    agent = bench.agent()
    real = AuditLog.write

    def full(self: AuditLog, entry: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(AuditLog, "write", full)
    cycle = agent.look()
    assert cycle.outcome == "unlogged"
    assert bench.states(ids) == {"PENDING"}
    monkeypatch.setattr(AuditLog, "write", real)
    bench.drive(agent, ids, seconds=60)


def test_without_an_agent_the_grace_ends_by_itself(start_slurm: Starts) -> None:
    bench = start_slurm(grace_s=3)
    ids = bench.submit_many(10)
    deadline = time.monotonic() + 40
    while bench.states(ids) != {"COMPLETED"}:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_jump_of_the_clock_changes_nothing(start_slurm: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = start_slurm()
    ids = bench.submit_many(10)
    agent = bench.agent()
    agent.look()
    real = time.time
    for jump in (-86_400.0, 86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        assert abs(agent.clock.now() - real()) < 2.0
        agent.look()
    bench.drive(agent, ids, seconds=60)


def test_drained_reserved_and_down_nodes_are_never_chosen(start_slurm: Starts) -> None:
    bench = start_slurm()
    run = bench.slurm.run
    run("scontrol", "update", "NodeName=a100n1", "State=DRAIN", "Reason=test")
    run("scontrol", "create", "reservation", "ReservationName=r", "StartTime=now", "Duration=60", "Users=root", "Nodes=v100n1")
    soon = ["scontrol", "create", "reservation", "ReservationName=s", "StartTime=now+2minutes", "Duration=60", "Users=root", "Nodes=v100n2"]
    run(*soon)
    bench.slurm.kill("t4n1")
    run("scontrol", "update", "NodeName=t4n1", "State=DOWN", "Reason=test")
    ids = [str(bench.slurm.submit(0.5, "--gres=gpu:1", "-N1", "--mem=100", "--time=5")) for _ in range(30)]
    told = bench.drive(bench.agent(), ids, seconds=60)
    assert {node for _, nodes in told for node in nodes} <= {"a100n2", "t4n2"}


def test_jobs_of_others_are_left_alone(start_slurm: Starts) -> None:
    bench = start_slurm(partitions={"main": "ALL", "other": "ALL"})
    submit, size = bench.slurm.submit, ("-N1", "--gres=gpu:1", "--mem=100", "--time=5")
    held = str(submit(1, "--hold", *size))
    later = str(submit(1, "--begin=now+1hour", *size))
    elsewhere = str(submit(1, "--partition=other", *size))
    first = str(submit(30, *size))
    after = str(submit(1, f"--dependency=afterok:{first}", *size))
    agent = bench.agent(partitions=("main",))
    cycle = agent.look()
    assert [start["job_id"] for start in cycle.starts] == [first]
    assert set(cycle.left_alone) == {held, later, elsewhere, after}
    assert {row["job_state"] for job, row in bench.rows().items() if job != first} == {"PENDING"}


def test_arrays_features_and_exclusive_nodes(start_slurm: Starts) -> None:
    from queuewise.serve.local_slurm import NodeKind

    bench = start_slurm(kinds=(NodeKind("fast", 2, 2, "a100", features=("nvlink",)), NodeKind("slow", 2, 2, "t4")))
    size = ("--mem=100", "--time=5")
    array = bench.slurm.submit(0.5, "-N1", "--array=0-5%2", "--gres=gpu:1", *size)
    linked = bench.slurm.submit(0.5, "-N1", "--constraint=nvlink", "--gres=gpu:2", *size)
    typed = bench.slurm.submit(0.5, "-N1", "--gres=gpu:t4:2", *size)
    alone = bench.slurm.submit(0.5, "-N2", "--exclusive", *size)
    agent = bench.agent("fcfs")
    deadline = time.monotonic() + 60
    while {str(row["job_state"]) for row in bench.rows().values()} != {"COMPLETED"}:
        agent.look()
        assert time.monotonic() < deadline, bench.slurm.run("squeue")
        time.sleep(0.2)
    rows = bench.rows()
    assert len([row for row in rows.values() if row["array_job_id"] == array]) == 6
    assert rows[str(linked)]["nodes"].startswith("fast")
    assert rows[str(typed)]["nodes"].startswith("slow")
    assert rows[str(alone)]["node_count"] == 2


def test_the_switch_releases_what_waits(start_slurm: Starts) -> None:
    bench = start_slurm()
    agent = bench.agent(home=bench.slurm.home / "live")
    ids = bench.submit_many(5, (0.3, 0.6))
    switch_off(bench.slurm.home / "live")
    assert agent.look().outcome == "off"
    deadline = time.monotonic() + 20
    while bench.states(ids) != {"COMPLETED"}:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_a_burst_of_2000_jobs_on_50_nodes(start_slurm: Starts) -> None:
    bench = start_slurm(kinds=FIFTY_NODES)
    script = "#!/bin/sh\nexec sleep 0.2\n"
    for _ in range(20):
        options = ("--array=0-99", "-N1", "--gres=gpu:1", "--mem=10", f"--time={bench.random.randint(1, 60)}", "--output=/dev/null")
        bench.slurm.run("sbatch", "--parsable", f"--chdir={bench.slurm.home}", *options, stdin=script)
    agent = bench.agent("fcfs", expects=False)
    longest, started, deadline = 0.0, 0, time.monotonic() + 400
    while time.monotonic() < deadline:
        began = time.monotonic()
        cycle = agent.look()
        longest = max(longest, time.monotonic() - began)
        started += len(cycle.starts)
        states = {str(row["job_state"]) for row in bench.rows().values()}
        if states == {"COMPLETED"}:
            break
        time.sleep(0.2)
    assert states == {"COMPLETED"}
    assert started == 2000
    print(f"longest look {longest:.2f} s")


def test_when_and_why(start_slurm: Starts, tmp_path: Path) -> None:
    bench = start_slurm(grace_s=1)
    bench.slurm.submit(600, "-N6", "--exclusive", "--time=12", "--begin=now")
    time.sleep(2)
    waiting = [str(bench.slurm.submit(5, "-N1", "--gres=gpu:a100:8", "--mem=100", "--time=1")) for _ in range(3)]
    time.sleep(2)
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nodes=1 --gres=gpu:8\n#SBATCH -t 1 --mem=100M\nsleep 1\n")
    saved = tmp_path / "snapshot.json"

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            command(bench, "slurm", *arguments), env=environment(bench), capture_output=True, text=True, check=True, timeout=120
        )
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    now = time.time()
    found = run("when", waiting[0], "--json", "--draws", "20")
    assert now - 5 < found["p10"] <= found["p50"] <= found["p90"] < now + 800
    assert run("when", str(script), "--json", "--draws", "10")["p50"] >= found["p10"]
    run("save", str(saved))
    assert run("when", waiting[0], "--snapshot", str(saved), "--json", "--draws", "20")["p50"] > now
    why = run("why", waiting[2], "--snapshot", str(saved), "--json")
    assert why["jobs_ahead"] >= 1
    assert not why["starts_now"]
