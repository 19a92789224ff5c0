"""Variants of tables with known values: kernels without the code for others, and the same schedules with it."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT
from queuewise.policies.names import parse_policy
from queuewise.policies.replaying import known_jobs
from queuewise.sim.core import engine
from queuewise.sim.core.compilation import JIT_DISABLED, _EntryCompiler, inline, kernel
from queuewise.sim.core.loop import replay, replay_plain, replay_preemptive
from queuewise.sim.core.setup import Layout, lay_out
from queuewise.sim.core.state import PLAIN, PREEMPTIVE
from queuewise.sim.core.tables import Scalars, Table, addresses_of, column, has_known, table_reader
from queuewise.workload.estimates import Estimates
from queuewise.workload.models import generate

compiled_only = pytest.mark.skipif(JIT_DISABLED, reason="nothing is compiled")


class Flags(Scalars, dtype=np.int64):
    mode: int
    rare: int


class Small(Table):
    flags: Flags = column()


KNOWN = {("flags", "mode"): frozenset({1, 2}), ("flags", "rare"): frozenset({0})}
as_small = table_reader(Small)
as_known = table_reader(Small, "Known", KNOWN)


@kernel
def cannot_be_compiled(t: Small) -> int:
    return t.no_such_column[0]  # type: ignore[attr-defined, no-any-return]


@inline
def is_rare(t: Small) -> bool:
    return t.flags.rare != 0


@kernel
def run(t: Small) -> int:
    if t.flags.rare or is_rare(t):
        return cannot_be_compiled(t)
    if t.flags.mode == 3:
        return cannot_be_compiled(t)
    flags = t.flags
    if flags.mode >= 1 and flags.rare == 0:
        return flags.mode * 10 + flags.rare
    return cannot_be_compiled(t)


def _run_small(addresses: Any) -> int:
    return run(as_small(addresses))


def _run_known(addresses: Any) -> int:
    return run(as_known(addresses))


def compiled(function: Any) -> Any:
    return numba.njit(pipeline_class=_EntryCompiler)(function)


@compiled_only
def test_code_for_other_values_is_not_compiled() -> None:
    assert compiled(_run_known)(addresses_of(Small(Flags(mode=2)))) == 20
    with pytest.raises(numba.TypingError, match="no_such_column"):
        compiled(_run_small)(addresses_of(Small(Flags(mode=2))))


def test_tables_are_checked_for_known_values() -> None:
    assert has_known(Small(Flags(mode=1)), KNOWN)
    assert not has_known(Small(Flags(mode=3)), KNOWN)
    assert not has_known(Small(Flags(mode=1, rare=1)), KNOWN)


def laid_out(policy: str, jobs: int = 300) -> tuple[Any, Layout]:
    cluster = load_cluster("8x8:V100-16")
    workload = generate("bench", jobs, 3, gpus=64, load=1.2)
    parsed = parse_policy(policy)
    rules = parsed.rules(known_jobs(parsed, workload, cluster, Estimates(workload.requested), 0, PERFECT), "reorder")
    return rules, lay_out(workload, cluster, rules, runtime=workload.runtime, estimate=workload.requested)


PLAIN_POLICIES = ("fcfs", "sjf", "fcfs+easy", "saf+greedy", "wfp3+easy", "sjf+easy-strict", "fcfs+easy@spread", "fcfs~1h", "wise")
PREEMPTIVE_POLICIES = ("srtf", "las", "las2d", "tiresias", "gittins", "priority-preempt", "las@spread")


@pytest.mark.parametrize("policy", [*PLAIN_POLICIES, *PREEMPTIVE_POLICIES])
def test_replays_of_variants_are_those_of_the_whole_engine(policy: str) -> None:
    variant, known = (replay_plain, PLAIN) if policy in PLAIN_POLICIES else (replay_preemptive, PREEMPTIVE)
    schedules = []
    for chosen in (variant, replay):
        rules, layout = laid_out(policy)
        assert has_known(layout.world, known)
        if not JIT_DISABLED and not chosen.signatures:  # type: ignore[attr-defined]
            chosen.compile(engine.REPLAY_ARGUMENTS)  # type: ignore[attr-defined]
        schedules.append(engine.run_kernel(chosen, rules, *layout.tables))
    found, whole = schedules
    assert found.count.decisions == whole.count.decisions
    for name in ("status", "start", "end", "piece_job", "piece_node", "piece_gpus"):
        pieces = int(found.count.pieces) if name.startswith("piece") else len(found.start)
        np.testing.assert_array_equal(getattr(found, name)[:pieces], getattr(whole, name)[:pieces])


@pytest.mark.parametrize("policy", ["defrag", "fcfs+conservative", "fcfs+slurm", "fcfs+greedy@fgd", "fcfs@tier"])
def test_other_replays_have_the_whole_engine(policy: str) -> None:
    world = laid_out(policy)[1].world
    assert not has_known(world, PLAIN)
    assert not has_known(world, PREEMPTIVE)


def test_a_variant_is_chosen_by_what_a_replay_needs() -> None:
    chosen = [engine.variant_for(laid_out(policy)[1].world) for policy in ("fcfs+easy", "srtf", "fcfs+conservative")]
    assert chosen == [replay_plain, replay_preemptive, replay]
