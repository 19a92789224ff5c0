"""Logs and models in, one table of jobs out."""

from queuewise.workload.jobs import Workload
from queuewise.workload.load import load_workload
from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadOptions, Tally

__all__ = ["ClusterFacts", "Loaded", "NodeFacts", "ReadOptions", "Tally", "Workload", "load_workload"]
