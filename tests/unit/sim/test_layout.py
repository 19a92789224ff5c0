"""Rows that are numbered, and pools that are found once per cluster."""

import numpy as np

from queuewise.cluster import load_cluster
from queuewise.sim.core.layout import Pools, unique_rows


def test_rows_are_numbered_as_numpy_does() -> None:
    random = np.random.default_rng(1)
    table = np.column_stack([random.integers(0, 3, 200), random.integers(0, 2, 200), random.integers(0, 4, 200)])
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    example, number = unique_rows(list(table.T))
    assert example.tolist() == first.tolist()
    assert number.tolist() == inverse.ravel().tolist()


def test_one_row_and_no_row() -> None:
    assert [part.tolist() for part in unique_rows([np.array([7])])] == [[0], [0]]
    assert [part.tolist() for part in unique_rows([np.array([], np.int64)])] == [[], []]


def test_pools_of_a_cluster_are_found_once() -> None:
    cluster = load_cluster("3x8:V100-16")
    pools = Pools.of(cluster)
    assert pools is Pools.of(cluster)
    assert pools is not Pools.of(load_cluster("3x8:V100-16"))
    assert pools.of_node.tolist() == [0, 0, 0]
    assert pools.example.tolist() == [0]
