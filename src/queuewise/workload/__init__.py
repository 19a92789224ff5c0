"""Workloads: logs and models become one table of jobs."""

from queuewise.workload.jobs import Workload
from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadOptions, Tally
from queuewise.workload.workload_loader import load_workload

__all__ = ["ClusterFacts", "Loaded", "NodeFacts", "ReadOptions", "Tally", "Workload", "load_workload"]
