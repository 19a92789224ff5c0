"""The page on a policy of one's own names exactly the fields that there are, and so do the engine and the starter's comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuewise.policies.interface import Running, ShownState, View
from queuewise.policies.records import ClusterRecord, Demand, Job, Node, Queue, UserRecord
from queuewise.policies.starter import POLICY
from queuewise.policies.user_code import JOB_PARAMETERS, NODE_PARAMETERS, TIME_LIMIT_S
from queuewise.sim import placement, queue
from queuewise.sim.placement import NODE_FACTS
from queuewise.sim.queue import FACTS

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8").split("\n## A policy of your own\n")[1]
TITLES = {
    "Fields of job": Job,
    "Fields of queue": Queue,
    "Fields of cluster": ClusterRecord,
    "Fields of user": UserRecord,
    "Fields of node": Node,
    "Fields of the job that is placed": Demand,
}


def names_under(title: str) -> list[str]:
    text = PAGE.split(f"\n#### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("title", "record"), TITLES.items())
def test_the_page_names_the_fields(title: str, record: type) -> None:
    assert tuple(names_under(title)) == record._fields  # type: ignore[attr-defined]


def test_the_page_names_the_members_of_a_view() -> None:
    assert names_under("Members of view") == [name for of in (View, ShownState) for name in vars(of) if not name.startswith("_")]
    assert all(f"`{field}`" in PAGE for field in Running._fields)


def test_the_page_names_the_parameters_and_the_limit() -> None:
    assert all(f"`{name}`" in PAGE for name in (*JOB_PARAMETERS, *NODE_PARAMETERS))
    assert f"may take {TIME_LIMIT_S:g} s" in PAGE


def test_records_are_the_engines() -> None:
    assert Job._fields == FACTS.names
    assert Node._fields == NODE_FACTS.names
    assert len(Demand._fields) == placement.DEMAND_SIZE
    assert len(ClusterRecord._fields) == queue.OUTLOOK_SIZE + 1  # the utilisation follows from the others


@pytest.mark.parametrize("record", [Job, Queue, ClusterRecord, UserRecord, Node, Demand])
def test_the_starter_names_the_fields(record: type) -> None:
    assert f" {' '.join(record._fields)}" in re.sub(r"\n# +", " ", POLICY)  # type: ignore[attr-defined]
