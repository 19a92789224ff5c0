"""Placement: on which nodes and GPUs a job starts.

`placement_rules` contains the rules that choose node by node, `tiers` the tiers of RLTune, `fgd` fragmentation gradient
descent, and `node_states` and `gang_moves` what a solver outside the engine needs. This file declares the codes and columns of placement.

Axes: N nodes, T task types.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.tables import F64, I64, Table, column

# PolicyFlags.placement
FIRST, PACK, SPREAD, RANDOM, FASTEST, CHEAPEST, TIER, FGD, BY_SCORE, BY_SOLVER = range(10)
# World.class_primary: the resource by which rules compare nodes for a class
BY_GPU, BY_CPU, BY_MEM = range(3)
# Entries of State.demand: the job being placed, for a function that scores nodes
NUM_TASKS, REMAINING, TASK_GPUS, TASK_CPUS, TASK_MEM_MIB, DEMAND_SIZE = range(6)

NodeRecords = NDArray[np.void]  # of NODE_FACTS
# What a function that scores nodes may know about a node. Free amounts of candidate nodes are updated before each call.
NODE_FACTS = np.dtype(
    [
        ("index", np.int64),
        ("gpus", np.float64),
        ("free_gpus", np.float64),  # including the free part of shared GPUs
        ("whole_gpus", np.float64),  # GPUs that are wholly free
        ("cores", np.float64),  # inf: not modelled, never the bottleneck
        ("free_cores", np.float64),
        ("mem_mib", np.float64),  # inf: the same
        ("free_mem_mib", np.float64),
        ("slots", np.float64),  # tasks of the job that the node can take now
        ("kind", np.int64),  # position of the GPU kind in the cluster's list of kinds, -1 without GPUs
        ("speed", np.float64),  # of its GPU kind, 1.0 without GPUs
        ("watts", np.float64),  # peak - idle of one GPU
        ("core_watts", np.float64),
        ("rack", np.int64),
        ("asleep", np.float64),  # 1: the node must wake first, 0: it is awake or waking
    ],
    align=True,
)


class PlacementWorld(Table):
    pool_domain: I64 = column("pools", meaning="partition of the pool, if no node is in two of them; otherwise 0. Tiers keep gangs in one")
    penalty: F64 = column("penalties", meaning="added to the runtime factor of a job on more nodes, and on more racks, than necessary")
    node_params: F64 = column("params", meaning="numbers for the function that scores nodes")
    # Task types of the workload, for fragmentation
    type_gpu: I64 = column("types", unit="milli")
    type_cpu: I64 = column("types", unit="milli")
    type_mem: I64 = column("types", unit="MiB")
    type_kinds: I64 = column("types", meaning="bit mask of allowed GPU kinds")
    type_weight: I64 = column("types", meaning="tasks of the type in the workload")


class PlacementState(Table):
    # The placement being built: one entry per node and set of GPUs
    place_node: I64 = column("placed")
    place_tasks: I64 = column("placed")
    place_gpus: I64 = column("placed", meaning="bit mask of the node's GPUs")
    scratch_nodes: I64 = column("nodes", meaning="lists of nodes, valid within one search")
    # The rule BY_SCORE
    node_facts: NodeRecords = column(dtype=NODE_FACTS)  # [N or 1]
    node_score: F64 = column("scored_nodes", initial=0.0)
    demand: F64 = column("demand", initial=0.0, meaning="the job whose task is being placed")
