"""The agent before commands of Slurm that only take notes: what it holds, releases, orders and gives up."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fake_slurm import NOW, FakeSlurm, node, row
from queuewise.errors import InputError
from queuewise.serve import slurm_control
from queuewise.serve.audit_log import AuditLog, replay_audit
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.holding import HELD_LONG_ENOUGH, NO_START
from queuewise.serve.kill_switch import switch_off
from queuewise.serve.live_guard import GuardLimits, LiveGuard
from queuewise.serve.slurm_agent import SlurmAgent
from queuewise.serve.slurm_control import AT_ONCE, ServerClock, hand_over
from queuewise.serve.slurm_watchdog import Watchdog, has_agent, take_back


def agent(slurm: FakeSlurm, policy: str = "fcfs+easy", **options: Any) -> SlurmAgent:
    usual = {"mode": "act", "by": "start", "tell": lambda text: None, "clock": ServerClock(NOW)}
    return SlurmAgent(GuardedPolicy(policy), slurm=slurm, **{**usual, **options})


def busy(number: int, where: str = "n1", gpus: int = 4, **fields: Any) -> dict[str, Any]:
    """A job that runs on a whole node."""
    held = {"nodes": where, "allocated_nodes": [{"nodename": where, "sockets": {"0": {"cores": {"0": "allocated"}}}}]}
    runs = {"job_state": "RUNNING", "start_time": NOW - 50, "gres_detail": [f"gpu:a100:{gpus}(IDX:0-{gpus - 1})"]}
    return row(number, nodes=where, job_resources=held, **{**runs, **fields})


FULL = (busy(1, "n1"), busy(2, "n2"))


def test_a_job_that_waits_for_room_goes_on_waiting() -> None:
    slurm = FakeSlurm(rows=[*FULL, row(3), row(4)])
    agent(slurm).look()
    until = datetime.fromtimestamp(NOW + 300).isoformat()
    assert slurm.sent == [f'JobId=3,4 AdminComment="queuewise grace 300 until {NOW + 300}" StartTime={until}']


def test_every_job_is_renewed_by_the_grace_that_its_mark_names() -> None:
    grace = {3: 60, 4: 600, 5: 60}
    marked = [row(k, eligible_time=NOW + 10, admin_comment=f"queuewise grace {s} until {NOW + 10}") for k, s in grace.items()]
    slurm = FakeSlurm(rows=[*FULL, *marked])
    agent(slurm).look()
    assert [change.partition(" until")[0] for change in slurm.sent] == [
        'JobId=3,5 AdminComment="queuewise grace 60', 'JobId=4 AdminComment="queuewise grace 600',
    ]  # fmt: skip


MARKS = (f"queuewise grace 300 until {NOW + 200}", "queuewise grace 300", "queuewise placed", "queuewise released")


@pytest.mark.parametrize("mark", MARKS)
def test_a_begin_time_that_somebody_else_has_set_stays(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_control, "ServerClock", lambda: ServerClock(NOW))
    slurm = FakeSlurm(rows=[row(3, eligible_time=NOW + 86_400, admin_comment=mark, required_nodes="n1")])
    one = agent(slurm, home=tmp_path)
    one._placed["3"] = -1e9
    one.look()
    switch_off(tmp_path)
    one.look()
    hand_over(slurm)
    assert not [change for change in slurm.sent if "StartTime" in change]
    assert bool(slurm.sent) == (mark == "queuewise placed")  # it loses its place


def test_an_agent_that_is_off_and_cannot_reach_slurm_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm()
    monkeypatch.setattr(FakeSlurm, "jobs", lambda self: (_ for _ in ()).throw(InputError("slurmctld is down")))
    switch_off(tmp_path)
    looks: list[str] = []
    began = time.monotonic()
    agent(slurm, home=tmp_path).run(0.3, until=lambda: time.monotonic() > began + 1.0, each=lambda cycle: looks.append(cycle.outcome))
    assert set(looks) == {"unreachable"}
    assert len(looks) <= 5


@pytest.mark.parametrize("who", ["the next agent", "the switch", "the watchdog"])
def test_the_order_of_an_agent_that_is_gone_is_taken_back(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = row(9, ours=False, priority=700, site_factor=55)
    ranked = [row(k, ours=False, priority=p, time_limit=m) for k, p, m in ((3, 500, 50), (4, 300, 10))]
    slurm = FakeSlurm(rows=[*FULL, *ranked])
    agent(slurm, "sjf+easy", by="priority", home=tmp_path).look()
    assert [r["site_factor"] for r in slurm.rows[2:]] == [-200, 200]
    slurm.rows.append(others)
    if who == "the next agent":
        switch_off(tmp_path)
        agent(slurm, "sjf+easy", by="priority", home=tmp_path).look()
    elif who == "the switch":
        assert "2 lost the place" in hand_over(slurm, tmp_path)
    else:
        monkeypatch.setattr(slurm_control, "SlurmCommands", lambda: slurm)
        assert take_back(tmp_path)
    assert [r["site_factor"] for r in slurm.rows[2:]] == [0, 0, 55]
    assert hand_over(slurm, tmp_path) == "0 jobs were given back to Slurm"


def test_watchdogs_know_of_the_next_agent(tmp_path: Path) -> None:
    assert not has_agent(tmp_path)
    watchdog = Watchdog(tmp_path, {})
    assert has_agent(tmp_path)
    os.close(watchdog._lock)  # as when it ends
    assert not has_agent(tmp_path)


def test_a_job_that_can_never_start_is_released() -> None:
    slurm = FakeSlurm(rows=[row(3, tres_per_node="gres:gpu:9")])
    cycle = agent(slurm).look()
    assert slurm.sent == ['JobId=3 AdminComment="queuewise released" StartTime=now']
    assert cycle.left_alone == {"3": NO_START}


@pytest.mark.parametrize(
    ("expects", "waited_s", "kept"), [(True, 700, True), (True, 4 * 86_400, False), (False, 700, False), (False, 500, True)]
)
def test_no_job_is_held_for_ever(expects: bool, waited_s: int, kept: bool) -> None:
    slurm = FakeSlurm(rows=[*FULL, row(3, submit_time=NOW - waited_s)])
    cycle = agent(slurm, expects=expects).look()
    assert (" until " in slurm.sent[0]) == kept
    assert cycle.left_alone == ({} if kept else {"3": HELD_LONG_ENOUGH})


def test_jobs_that_are_left_alone_do_not_wait_for_us() -> None:
    slurm = FakeSlurm(rows=[
        row(1, tres_per_node="gres:shard:1"),
        row(2, priority=0, state_reason="JobHeldUser"),
        row(3, dependency="afterok:9(unfulfilled)"),
        row(4, admin_comment=""),
        row(5, admin_comment="queuewise released"),
        row(6, tres_per_node="gres:shard:1", array_job_id=6, array_task_string="0-5%2"),
    ])  # fmt: skip
    cycle = agent(slurm).look()
    assert [change.split()[0] for change in slurm.sent] == ["JobId=1", "JobId=6_[0-5]"]
    assert {"1", "2", "3", "4", "5"} <= set(cycle.left_alone)


def test_a_place_is_given_up_when_its_node_leaves() -> None:
    placed = row(3, admin_comment="queuewise placed", required_nodes="n1")
    slurm = FakeSlurm(rows=[placed], machines=[node("n1", state="idle", state_flags=["DRAIN"]), node("n2")])
    agent(slurm).look()
    assert slurm.sent[0] == 'JobId=3 SiteFactor=0 ReqNodeList= AdminComment="queuewise released" StartTime=now'


def test_places_are_given_up_without_an_agent() -> None:
    slurm = FakeSlurm(rows=[row(3, admin_comment="queuewise placed", required_nodes="n1"), row(4), row(5, ours=False)])
    assert hand_over(slurm) == "2 jobs were given back to Slurm"
    assert [change.split()[0] for change in slurm.sent] == ["JobId=3", "JobId=4"]


# --- by priority


def test_priorities_are_dealt_out_among_the_jobs_that_are_steered() -> None:
    rows = [*FULL, *(row(k, ours=False, priority=p, time_limit=m) for k, p, m in ((3, 500, 50), (4, 300, 10), (5, 100, 30)))]
    other = row(6, ours=False, priority=400, tres_per_node="gres:shard:1")
    slurm = FakeSlurm(rows=[*rows, other])
    one = agent(slurm, "sjf+easy", by="priority")
    one.look()
    assert {r["job_id"]: r["priority"] for r in slurm.rows[2:]} == {4: 500, 5: 300, 3: 100, 6: 400}
    assert len(slurm.sent) == 3
    one.look()
    assert len(slurm.sent) == 3  # they are in order


def test_equal_priorities_become_different_and_stay_above_zero() -> None:
    slurm = FakeSlurm(rows=[*FULL, *(row(k, ours=False, priority=1, time_limit=m) for k, m in ((3, 50), (4, 10), (5, 30)))])
    agent(slurm, "sjf+easy", by="priority").look()
    assert {r["job_id"]: r["site_factor"] for r in slurm.rows[2:]} == {4: 6, 5: 4, 3: 2}  # what is shown as 1 may be 0


def test_an_array_is_one_change_and_refusals_are_tried_again() -> None:
    array = row(3, ours=False, array_job_id=3, array_task_string="0-9", priority=100, time_limit=50)
    slurm = FakeSlurm(rows=[*FULL, array, row(4, ours=False, priority=50, time_limit=10)], refuse="SiteFactor", obeys=False)
    one = agent(slurm, "sjf+easy", by="priority")
    cycle = one.look()
    assert [change.split()[0] for change in cycle.commands] == ["JobId=4", "JobId=3_[0-9]"]
    assert "slurm_update error" in cycle.problem
    one._decide_at = 0.0
    assert one.look().commands == cycle.commands


def test_site_factors_come_from_sprio_where_the_json_has_none() -> None:
    rows = [
        *FULL,
        *(row(k, ours=False, priority=p, time_limit=m, site_factor=None) for k, p, m in ((3, 10, 50), (4, 500, 10), (5, 500, 30))),
    ]
    slurm = FakeSlurm(rows=rows, sprio="  3  -90\n  4  400\n  5  0\n", obeys=False)
    cycle = agent(slurm, "sjf+easy", by="priority").look()
    assert cycle.commands == ("JobId=5 SiteFactor=-400", "JobId=3 SiteFactor=-1")


def test_the_fairness_floor_holds_by_priority() -> None:
    guard = LiveGuard("fcfs+easy", "fcfs+easy", GuardLimits(fairness_floor=0.5))
    rows = [*FULL, row(3, ours=False, priority=9), row(4, ours=False, priority=5, user_name="bob")]
    assert agent(FakeSlurm(rows=rows), by="priority", guard=guard).look().order == ("4", "3")


# --- what must not stop it


def test_whatever_happens_the_next_look_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(rows=[row(3)])
    one = agent(slurm)
    monkeypatch.setattr(FakeSlurm, "nodes", lambda self: 1 / 0)
    assert (one.look().outcome, one.look().problem) == ("failed", "ZeroDivisionError: division by zero")
    monkeypatch.undo()
    assert one.look().outcome == "model"


def test_the_switch_stops_changes_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(rows=[row(k, tres_per_node="gres:shard:1") for k in range(1, 61)])
    real = FakeSlurm._change
    monkeypatch.setattr(FakeSlurm, "_change", lambda self, text: (switch_off(tmp_path), real(self, text))[1])
    cycle = agent(slurm, home=tmp_path).look()
    assert len(slurm.sent) == AT_ONCE
    assert "stopped before 35 of 60" in cycle.problem
    assert agent(slurm, home=tmp_path).look().outcome == "off"
    assert len(slurm.sent) == 60  # all were released


def test_the_switch_takes_the_order_back(tmp_path: Path) -> None:
    slurm = FakeSlurm(rows=[*FULL, *(row(k, ours=False, priority=p, time_limit=m) for k, p, m in ((3, 500, 50), (4, 300, 10)))])
    one = agent(slurm, "sjf+easy", by="priority", home=tmp_path)
    one.look()
    switch_off(tmp_path)
    one.look()
    assert [r["site_factor"] for r in slurm.rows[2:]] == [0, 0]


def test_what_is_remembered_about_jobs_is_forgotten_with_them() -> None:
    slurm = FakeSlurm(rows=[busy(1, job_state="COMPLETED", end_time=NOW), row(3)])
    one = agent(slurm)
    one.look()
    assert (one._learned, set(one._first_seen)) == ({"1"}, {"3"})
    slurm.rows.clear()
    one.look()
    assert not one._learned
    assert not one._first_seen


def test_the_guard_compares_also_where_jobs_have_types() -> None:
    guard = LiveGuard("fcfs+easy", "fcfs+easy", GuardLimits(window=4, strikes=1))
    told: list[str] = []
    machines = [node("n1"), node("n2", gres="gpu:v100:4")]
    slurm = FakeSlurm(rows=[row(k, tres_per_node=f"gres:gpu:{'a100' if k % 2 else 'v100'}:1") for k in range(1, 5)], machines=machines)
    one = agent(slurm, guard=guard, tell=told.append)
    one.look()
    slurm.rows = [{**r, "job_state": "COMPLETED", "start_time": NOW, "end_time": NOW + 100} for r in slurm.rows]
    one.look()
    assert len(told) == 1
    assert told[0].startswith("mean bounded slowdown of 4 jobs in the engine 1.00, of the baseline 1.00; in reality 1.60")


def test_the_order_is_replayed_as_it_was_acted_on(tmp_path: Path) -> None:
    guard = LiveGuard("sjf+easy", "fcfs+easy", GuardLimits(fairness_floor=0.5))
    rows = [*FULL, row(3, ours=False, priority=9, time_limit=5), row(4, ours=False, priority=5, user_name="bob")]
    log = AuditLog(tmp_path / "audit.jsonl")
    cycle = agent(FakeSlurm(rows=rows), "sjf+easy", by="priority", guard=guard, audit=log).look()
    [one] = replay_audit(log.path)
    assert one.same
    assert one.again["order"] == list(cycle.order) == ["4", "3"]
    assert set(one.again["expected_starts"]) == {"3", "4"}
    entry = {**one.entry, "order": ["3", "4"]}
    log.path.write_text(json.dumps(entry) + "\n")
    assert [two.differs for two in replay_audit(log.path)] == [["order"]]


def test_starts_that_the_guard_held_back_are_replayed(tmp_path: Path) -> None:
    guard = LiveGuard("fcfs+easy", "fcfs+easy", GuardLimits(fairness_floor=0.5))
    rows = [row(k, tres_per_node="gres:gpu:4") for k in (3, 4)] + [row(5, user_name="bob")]
    log = AuditLog(tmp_path / "audit.jsonl")
    cycle = agent(FakeSlurm(rows=rows), guard=guard, audit=log).look()
    assert set(cycle.held_back) == {"4"}
    [one] = replay_audit(log.path)
    assert one.again["held_back"] == ["4"]
    assert one.same
