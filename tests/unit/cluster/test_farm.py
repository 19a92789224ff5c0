"""Farms that are drawn at random."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.farm import parse_farm
from queuewise.errors import InputError


def test_sizes_lie_within_the_ranges() -> None:
    farm = load_cluster("farm:50,cores=16-64,mem=64-512,seed=3")
    assert (farm.num_nodes, farm.num_gpus) == (50, 0)
    assert set((farm.node_cpu_milli // 1000).tolist()) == {16, 32, 64}
    assert set((farm.node_mem_mib // 1024).tolist()) == {64, 128, 256, 512}


def test_a_seed_is_a_farm() -> None:
    one, again, other = (load_cluster(f"farm:20,cores=8-128,mem=32-1024,seed={seed}") for seed in (3, 3, 4))
    assert np.array_equal(one.node_cpu_milli, again.node_cpu_milli)
    assert not np.array_equal(one.node_cpu_milli, other.node_cpu_milli)
    assert np.array_equal(load_cluster("farm:20").node_cpu_milli, parse_farm("farm:20,seed=0").draw(0).node_cpu_milli)


@pytest.mark.parametrize(
    "name", ["farm:", "farm:0", "farm:5,cores=16", "farm:5,cores=65-70", "farm:5,cpu=8-16", "farm:5,seed=x", "farm:5,seed=1,seed=2"]
)
def test_wrong_names_are_explained(name: str) -> None:
    with pytest.raises(InputError) as refused:
        load_cluster(name)
    assert "farm:50,cores=16-64" in str(refused.value.hint)
