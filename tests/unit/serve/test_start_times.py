"""When a job of a script would start: what its #SBATCH lines ask for counts, and what cannot be counted is refused."""

from __future__ import annotations

import pytest

from queuewise.errors import InputError
from queuewise.policies.snapshot import JobRecord, NodeRecord, NodeShape, Snapshot
from queuewise.serve.live_policy import load_policy
from queuewise.serve.runtime_history import RuntimeHistory
from queuewise.serve.start_times import with_script


def snapshot() -> Snapshot:
    shapes = [NodeShape("a", 4, "A100-40", 16_000, None, ("main", "nodes-12")), NodeShape("t", 2, "T4", 8000, None, ("main",))]
    nodes = [NodeRecord(n, "up", tuple(range(s.gpus)), {}, s.cpu_milli, None, shape=s) for n, s in enumerate(shapes)]
    return Snapshot(10.0, (), (), tuple(nodes))


def job(lines: str) -> JobRecord:
    script = "\n".join(["#!/bin/sh", "#SBATCH -t 10", *(f"#SBATCH {line}" for line in lines.split("\n")), "run"])
    return with_script(snapshot(), script, "ann", RuntimeHistory(), where="job.sh")[0].queue[-1].job


def test_types_and_exclusive_nodes_count() -> None:
    typed = job("--gres=gpu:t4:2")
    assert (typed.kinds, typed.gpu_milli) == (("T4",), 2000)
    assert job("--gpus-per-node=3").kinds == ()
    assert job("--gres=gpu").gpu_milli == 1000
    alone = job("--exclusive\n-c 10")
    assert (alone.cpu_milli, alone.gpu_milli) == (16_000, 4000)


@pytest.mark.parametrize(
    ("lines", "problem"), [("-C nvlink", "--constraint names nodes"), ("-w n1", "--nodelist"), ('--comment="open', "No closing quotation")]
)
def test_what_cannot_be_counted_is_refused(lines: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        job(lines)


def test_hints_name_no_sets_of_nodes() -> None:
    shown, name = with_script(snapshot(), "#SBATCH -t 10\n#SBATCH --gres=gpu:t4:3", "ann", RuntimeHistory(), where="job.sh")
    hints = load_policy("fcfs").explain(shown, name).hints
    assert hints
    assert "nodes-" not in "".join(hints)
