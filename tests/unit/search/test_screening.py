from __future__ import annotations

from collections.abc import Callable

import numpy as np

from queuewise.cluster import load_cluster
from queuewise.cluster.spec import Cluster
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.evaluation.protocol import block_jobs
from queuewise.policies import simulate
from queuewise.policies.names import parse_policy
from queuewise.policies.placing import PLACEMENTS
from queuewise.search.heuristics import FIRST, placed
from queuewise.search.screening import PLACED, Screening
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

ALWAYS = 1e9
FLAT, NODES = load_cluster("flat:256"), load_cluster("4x8:V100-16")


def screened(workload: Workload, cluster: Cluster, until: float = ALWAYS, *, preempt: bool = False) -> Screening:
    replay = ReplaySettings(estimates="oracle")
    spent: Callable[[], float] = lambda: 0.0  # noqa: E731
    made = Screening(workload, cluster, replay, {"bsld": 1.0, "wait": 1.0}, block_jobs(workload, replay.split), spent)
    made.run(until, preempt=preempt)
    return made


def test_where_places_matter_the_best_heuristics_are_tried_with_every_placement() -> None:
    found = screened(generate("bench", 300, 0, gpus=32, load=1.2), NODES)
    usual = [one for one in found.found if "@" not in one.policy]
    best = sorted(usual, key=lambda one: one.cost("train", found.objective))[:PLACED]
    with_places = {one.policy for one in found.found if "@" in one.policy}
    assert with_places == set(placed([one.policy for one in best], NODES))
    assert {parse_policy(name).placement for name in with_places} >= {"first", "spread", "tier", "fgd"}
    assert len(found.found) == found.tried


def test_where_places_do_not_matter_none_is_tried() -> None:
    assert not any("@" in one.policy for one in screened(generate("lublin", 300, 0), FLAT).found)


def test_placements_by_kinds_of_gpus_need_several_kinds() -> None:
    assert not [name for name in placed(["fcfs+easy"], NODES) if name.endswith(("@fastest", "@cheapest"))]
    assert {"fcfs+easy@fastest", "fcfs+easy@cheapest"} <= set(placed(["fcfs+easy"], load_cluster("hetero56")))
    assert {name.partition("@")[2] for name in placed(["fcfs+easy"], NODES)} <= set(PLACEMENTS)


def test_policies_that_stop_jobs_are_tried_if_that_is_allowed() -> None:
    log = generate("lublin", 300, 0)
    allowed, forbidden = ({one.policy for one in screened(log, FLAT, preempt=preempt).found} for preempt in (True, False))
    assert {"srtf", "las", "tiresias", "gittins-oracle"} <= allowed - forbidden
    assert forbidden < allowed


def test_without_time_the_first_ones_are_tried_all_the_same() -> None:
    found = screened(generate("lublin", 300, 0), FLAT, until=-1.0)
    assert [one.policy for one in found.found] == list(FIRST)
    assert found.tried > len(FIRST)


def test_figures_are_those_of_a_replay() -> None:
    log = generate("lublin", 300, 0)
    found = screened(log, FLAT, until=-1.0)
    jobs = found.blocks["val"]
    waits = simulate(log, FLAT, "sjf+easy", estimates="oracle").start - log.submit
    own = next(one for one in found.found if one.policy == "sjf+easy")
    assert own.wait["val"] == np.mean(waits[jobs.start : jobs.stop])
    assert found.seconds("sjf+easy") == own.seconds
    assert found.cost("sjf+easy", "val") == own.cost("val", found.objective)
    assert found.references(3)[0] == found.best("train").policy
