"""What keeps live policies from doing harm: checks of answers, deadlines, the guard, the audit log, the switch, and installation."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies import simulate as replay
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Place, Snapshot, WaitingJob
from queuewise.serve.answer_checks import problem_of
from queuewise.serve.audit_log import AuditLog, decision_entry, read_audit, replay_audit
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.kill_switch import is_off, switch_off, switch_on
from queuewise.serve.live_guard import EndedRecord, GuardLimits, LiveGuard
from queuewise.serve.live_policy import Decided, LivePolicy, RankedStart, load_policy
from queuewise.serve.runtime_history import EndedRun, RuntimeHistory
from queuewise.serve.slurm_install import installation, removal


def job(number: int, user: str = "ann", gpus: int = 1, estimate: float = 100.0, submit: float = 0.0) -> JobRecord:
    return JobRecord(number, submit, estimate, 1, 1, 1, gpus * 1000, 1000, 0, 0.0, estimate, user=user)


@pytest.fixture
def snapshot() -> Snapshot:
    shape = NodeShape("n", 4, "T4", 8000, 1024)
    nodes = tuple(NodeRecord(n, "up", (0, 1, 2, 3), {}, 8000, 1024, shape=replace(shape, name=f"n{n}")) for n in range(2))
    return Snapshot(10.0, tuple(WaitingJob(job(number, "ann" if number < 7 else "bob")) for number in range(8)), (), nodes)


def start(number: int, node: int = 0, gpus: tuple[int, ...] = (0,), tasks: int = 1) -> RankedStart:
    return RankedStart(number, (Place(node, tasks, gpus),), (f"n{node}",))


@pytest.mark.parametrize(
    ("starts", "problem"),
    [
        ((start(0), start(1, gpus=(1,))), ""),
        ((start(99),), "does not wait"),
        ((start(0), start(0, gpus=(1,))), "does not wait"),
        ((start(0), start(1)), "GPUs of node 0 that are not free"),
        ((start(0, node=5),), "node 5, which is not up"),
        ((start(0, tasks=2),), "wrong number of tasks"),
    ],
)
def test_answers_are_checked(snapshot: Snapshot, starts: tuple[RankedStart, ...], problem: str) -> None:
    found = problem_of(Decided(starts), snapshot)
    assert problem in found
    assert bool(found) == bool(problem)


def test_nodes_that_are_down_or_full_are_refused(snapshot: Snapshot) -> None:
    down = replace(snapshot.nodes[0], state="drained", free_gpus=(), free_cpu_milli=0, free_mem_mib=0)
    assert "not up" in problem_of(Decided((start(0),)), replace(snapshot, nodes=(down, snapshot.nodes[1])))
    full = replace(snapshot.nodes[0], free_cpu_milli=500)
    assert "no room" in problem_of(Decided((start(0),)), replace(snapshot, nodes=(full, snapshot.nodes[1])))


def late() -> Decided:
    time.sleep(0.5)
    return Decided(())


def test_the_fallback_answers_for_whatever_goes_wrong(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LivePolicy.decide
    wrongs: dict[str, Any] = {
        "an error": lambda self, shown: 1 / 0,
        "a lie": lambda self, shown: Decided((start(99),)),
        "too late": lambda self, shown: late(),
    }
    for name, wrong in wrongs.items():
        policy = GuardedPolicy("sjf+easy", deadline_s=0.1 if name == "too late" else None)
        monkeypatch.setattr(
            LivePolicy, "decide", lambda self, shown, wrong=wrong: wrong(self, shown) if self.name == "sjf+easy" else real(self, shown)
        )
        answer = policy.answer(snapshot)
        assert answer.policy == "fcfs+easy"
        assert answer.outcome == ("timeout" if name == "too late" else "fallback")
        assert answer.problem
        assert answer.decided == real(load_policy("fcfs+easy"), snapshot)
    monkeypatch.setattr(LivePolicy, "decide", real)
    policy = GuardedPolicy("sjf+easy", deadline_s=30.0)
    assert policy.answer(snapshot).outcome == "model"
    policy.distrusted = "it lost"
    assert policy.answer(snapshot).outcome == "fallback"


def test_the_rate_of_actions_and_the_part_of_one_user_are_limited(snapshot: Snapshot) -> None:
    guard = LiveGuard("sjf+easy", "fcfs+easy", GuardLimits(actions_per_minute=5, fairness_floor=0.5))
    assert [guard.allowed_actions(3), guard.allowed_actions(3), guard.allowed_actions(3)] == [3, 2, 0]
    starts = [start(number, node=number // 4, gpus=(number % 4,)) for number in range(8)]
    fair, unfair = guard.fair_starts(starts, snapshot)
    assert [one.job_id for one in fair] == [0, 1, 2, 3, 7]  # half of the machine for ann, while bob waits
    assert [one.job_id for one in unfair] == [4, 5, 6]


def test_the_part_of_a_user_is_counted_by_resource_and_among_those_who_want_the_same_nodes(snapshot: Snapshot) -> None:
    guard = LiveGuard("sjf+easy", "fcfs+easy", GuardLimits(fairness_floor=0.5))
    shapes = [replace(node.shape, partitions=(name,)) for node, name in zip(snapshot.nodes, ("a", "b"), strict=True) if node.shape]
    nodes = tuple(replace(node, shape=shape) for node, shape in zip(snapshot.nodes, shapes, strict=True))
    hungry = [replace(job(k, "ann", gpus=0), cpu_milli=3000, partition="a") for k in range(2)]  # 6 of 8 cores, and no GPU

    def fair(other: str) -> list[Any]:
        queue = tuple(WaitingJob(one) for one in (*hungry, replace(job(9, "bob"), partition=other)))
        starts = [start(k, gpus=()) for k in range(2)]
        return [one.job_id for one in guard.fair_starts(starts, replace(snapshot, nodes=nodes, queue=queue))[0]]

    assert fair("a") == [0]
    assert fair("b") == [0, 1]  # bob could not use these nodes


def test_jobs_that_never_start_count_against_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:

    def simulate(workload: Any, cluster: Any, policy: str, **options: Any) -> Any:
        assert options["max_wait"] == "1d"
        schedule = replay(workload, cluster, policy, **options)
        return replace(schedule, start=np.where(np.arange(len(workload)) % 2, np.nan, schedule.start)) if policy == "sjf" else schedule

    monkeypatch.setattr("queuewise.serve.live_guard.simulate", simulate)
    guard = LiveGuard("sjf", "fcfs", GuardLimits(window=4, strikes=1), "1d")
    for number in range(4):
        guard.note_ended(EndedRecord(job(number, estimate=10.0, submit=number * 50.0), 0.0, 10.0, 0.0))
    verdict = guard.compare(build("one", [NodeGroup(1, gpus=1, kind="T4", cpus=8)]))
    assert verdict is not None
    assert verdict.trips


def test_a_late_forecast_is_none(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = GuardedPolicy("sjf+easy", deadline_s=30.0)
    found = policy.forecast(snapshot)
    assert found is not None
    assert len(found.order) == 8
    monkeypatch.setattr(LivePolicy, "forecast", lambda self, shown: late())
    assert GuardedPolicy("sjf+easy", deadline_s=0.05).forecast(snapshot) is None


def test_a_policy_whose_scores_are_no_numbers_has_decisions_and_a_forecast(snapshot: Snapshot, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def score(job, now):\n    return job.estimate * float('nan')\n")
    policy = GuardedPolicy(f"{tmp_path}/bad.py:score+easy", deadline_s=30.0)
    answer = policy.answer(snapshot)
    assert (answer.outcome, answer.policy) == ("fallback", "fcfs+easy")
    assert policy.forecast(snapshot) == load_policy("fcfs+easy").forecast(snapshot)
    assert "has no forecast" in policy.forecast_problem


def test_wise_is_the_fallback_where_all_jobs_have_predictions(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = tuple(replace(one, job=replace(one.job, predicted=one.job.estimate / 2)) for one in snapshot.queue)
    running = tuple(replace(one, job=replace(one.job, predicted=one.job.estimate / 2)) for one in snapshot.running)
    predicted = replace(snapshot, queue=queue, running=running)
    policy = GuardedPolicy("sjf+easy")
    policy.distrusted = "it lost"
    assert policy.answer(predicted).policy == "wise"
    assert policy.forecast(predicted) == load_policy("wise").forecast(predicted)
    assert policy.answer(snapshot).policy == "fcfs+easy"
    assert GuardedPolicy("wise").fallback == "fcfs+easy"
    assert GuardedPolicy("sjf+easy", fallback="saf").fallback == "saf"


def test_a_fallback_that_fails_is_an_error_with_a_hint(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LivePolicy, "decide", lambda self, shown: 1 / 0)
    with pytest.raises(InputError, match="fcfs\\+easy cannot decide: ZeroDivisionError"):
        GuardedPolicy("sjf+easy").answer(snapshot)


@pytest.mark.parametrize(("policy", "trips"), [("ljf", True), ("sjf", False)])
def test_a_policy_that_does_worse_in_the_engine_is_switched_off(policy: str, trips: bool) -> None:
    guard = LiveGuard(policy, "fcfs", GuardLimits(window=20, strikes=2))
    cluster = build("one", [NodeGroup(1, gpus=1, kind="T4", cpus=8)])
    verdict = None
    rng = np.random.default_rng(1)
    for number in range(60):
        runtime = float(rng.choice((10.0, 2000.0)))
        guard.note_ended(EndedRecord(job(number, estimate=runtime, submit=number * 50.0), 100.0, runtime, 50.0))
        found = guard.compare(cluster)
        verdict = found or verdict
    assert verdict is not None
    assert verdict.trips == trips
    assert (verdict.policy_slowdown > verdict.baseline_slowdown) == trips
    assert verdict.wait_error_s == 50.0


def test_the_audit_log_is_replayed_and_rotated(tmp_path: Path, snapshot: Snapshot) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", rotate_bytes=20_000, kept=2)
    decided = load_policy("sjf+easy").decide(snapshot)
    entry = {"policy": "sjf+easy", "max_wait": None, "decision": decided.as_json(), "snapshot": json.loads(snapshot.to_json())}
    for _ in range(12):
        log.write(entry)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock"]
    again = list(replay_audit(log.path))
    assert again
    assert all(one.same for one in again)
    log.write({**entry, "decision": Decided(()).as_json()})
    assert not list(replay_audit(log.path))[-1].same


def test_entries_of_rotated_files_are_replayed_too(tmp_path: Path, snapshot: Snapshot) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", rotate_bytes=20_000)
    policy = GuardedPolicy("sjf+easy")
    for number in range(12):
        log.write(decision_entry(policy.answer(snapshot), snapshot, policy, mode="act", number=number))
    assert (tmp_path / "audit.jsonl.2").exists()
    assert [one.entry["number"] for one in replay_audit(log.path)] == list(range(12))
    assert all(one.same for one in replay_audit(log.path))


def test_a_policy_that_has_changed_since_is_noticed(tmp_path: Path, snapshot: Snapshot) -> None:
    own = tmp_path / "mine.py"
    own.write_text("def score(job):\n    return job.estimate\n")
    log, policy = AuditLog(tmp_path / "audit.jsonl"), GuardedPolicy(f"{own}:score+easy")
    log.write(decision_entry(policy.answer(snapshot), snapshot, policy, mode="act"))
    assert [one.differs for one in replay_audit(log.path, run_files=True)] == [[]]
    own.write_text("def score(job):\n    return job.estimate * 1.0\n")
    assert [one.differs for one in replay_audit(log.path, run_files=True)] == [["digest"]]


def test_a_full_disk_leaves_a_log_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write({"number": 1})
    real, calls = os.write, []

    def write(number: int, part: bytes) -> int:
        calls.append(part)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(number, part[:5])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        log.write({"number": 2})
    monkeypatch.setattr(os, "write", real)
    log.write({"number": 3})
    assert [entry["number"] for entry in read_audit(log.path)] == [1, 3]


def test_half_a_line_of_a_killed_program_costs_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write({"number": 1})
    with log.path.open("ab") as file:
        file.write(b'{"version": 1, "numb')
    log.write({"number": 3})
    assert [entry["number"] for entry in read_audit(log.path)] == [1, 3]
    log.path.write_text("no log\n")
    with pytest.raises(InputError, match="not an entry"):
        list(read_audit(log.path))


def test_the_switch(tmp_path: Path) -> None:
    assert not is_off(tmp_path)
    switch_off(tmp_path, "why")
    assert is_off(tmp_path)
    assert switch_on(tmp_path)
    assert not switch_on(tmp_path)
    assert not is_off(tmp_path)


THEIRS = "function slurm_job_submit(job_desc, part_list, uid)\n   return slurm.SUCCESS\nend\n\nreturn slurm.SUCCESS\n"
UNINDENTED = "function slurm_job_submit(job_desc, part_list, uid)\nif uid == 0 then\nreturn slurm.SUCCESS\nend\nreturn slurm.ERROR\nend\n"


@pytest.mark.parametrize("conf", ["ClusterName=x\nJobSubmitPlugins=cray # old\nPriorityType=priority/basic\n", "ClusterName=x", ""])
@pytest.mark.parametrize("plugin", [None, THEIRS, UNINDENTED, UNINDENTED.rstrip()])
def test_installation_is_undone_to_the_last_byte(tmp_path: Path, conf: str, plugin: str | None) -> None:
    path, lua = tmp_path / "slurm.conf", tmp_path / "job_submit.lua"
    path.write_text(conf)
    if plugin is not None:
        lua.write_text(plugin)
    changes = installation(path, grace_s=77, partitions=("gpu",))
    assert all(change.diff.startswith("--- ") for change in changes)
    assert path.read_text() == conf  # nothing was written yet
    for change in changes:
        change.apply()
    active = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in active if line.startswith("JobSubmitPlugins")] == [f"JobSubmitPlugins={'cray,' if 'cray' in conf else ''}lua"]
    assert "PriorityType=priority/multifactor" in active
    assert "os.time() + 77" in lua.read_text()
    assert "priority = 0" not in lua.read_text()
    assert installation(path, grace_s=77, partitions=("gpu",)) == []  # a second time there is nothing to do
    for change in removal(path):
        change.apply()
    assert path.read_text() == conf
    assert (lua.read_text() if plugin is not None else lua.exists()) == (plugin if plugin is not None else False)
    with pytest.raises(InputError):
        installation(path, grace_s=0)


def test_the_plugin_goes_behind_functions_whose_lines_are_not_indented(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("")
    for theirs, rest in ((UNINDENTED, ""), (UNINDENTED + "return slurm.SUCCESS\n", "return slurm.SUCCESS\n")):
        (tmp_path / "job_submit.lua").write_text(theirs)
        after = installation(tmp_path / "slurm.conf")[0].after
        assert after is not None
        assert after.startswith(UNINDENTED)
        assert after.endswith(f"-- queuewise: end\n{rest}")


def test_installation_keeps_owner_and_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=x\n")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1235)
    before = path.stat()
    for change in installation(path):
        change.apply()
    after = path.stat()
    assert path.read_text() != "ClusterName=x\n"
    assert (before.st_mode, before.st_uid, before.st_gid) == (after.st_mode, after.st_uid, after.st_gid)


def test_predictions_learn_from_ended_runs() -> None:
    history = RuntimeHistory()
    assert history.predict("ann", "train", 1, 3600.0) == 3600.0  # nothing is known: the limit
    for number in range(30):
        history.note(EndedRun("ann", "train", 1, 3600.0, 100.0, float(number)))
        history.note(EndedRun("bob", "train", 1, 3600.0, 3000.0, float(number)))
    assert history.predict("ann", "train", 1, 3600.0) < 300
    assert history.predict("bob", "train", 1, 3600.0) > 1000
    drawn = [
        history.draw(replace(job(1), estimate=3600.0, requested=3600.0, predicted=100.0), 50.0, np.random.default_rng(k)) for k in range(50)
    ]
    assert all(50.0 <= value <= 3600.0 for value in drawn)
