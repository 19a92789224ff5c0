"""Slurm's lists of nodes."""

from __future__ import annotations

import pytest

from queuewise.errors import InputError
from queuewise.workload.node_lists import expand_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n1,gpu2", ["n1", "gpu2"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("cpn-f13-03-[01-02],cpn-f13-04-01", ["cpn-f13-03-01", "cpn-f13-03-02", "cpn-f13-04-01"]),
        ("r[1-2]n[1,3]-ib", ["r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib"]),
    ],
)
def test_lists_are_expanded_in_order(text: str, names: list[str]) -> None:
    assert list(expand_nodes(text)) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n[3-1]", "n[a-b]", "n[]", "n1,,n2", "n[0-9999999999]", "n]1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a list of"):
        expand_nodes(text)
