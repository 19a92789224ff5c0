"""Twenty jobs on a real Slurm: read, decided, started where and in the order that was decided, and recorded."""

from __future__ import annotations

from queuewise.serve.audit_log import replay_audit
from slurm_bench import Starts


def test_twenty_jobs_are_started_as_decided(start_slurm: Starts) -> None:
    bench = start_slurm()
    ids = bench.submit_many(20)
    assert bench.states(ids) == {"PENDING"}
    agent = bench.agent()
    told = bench.drive(agent, ids, seconds=60)
    rows = bench.rows()
    assert {job: tuple(rows[job]["nodes"].split(",")) for job in ids} == dict(told)
    assert bench.order_of_starts() == [job for job, _ in told]
    assert agent.audit is not None
    again = list(replay_audit(agent.audit.path))
    assert again
    assert all(one.same for one in again)
