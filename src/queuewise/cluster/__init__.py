"""Clusters: nodes and what they hold, a catalogue of GPU kinds, presets, and files of the user's own."""

from queuewise.cluster.cluster_loader import load_cluster, preset_names
from queuewise.cluster.gpus import GpuKind, gpu_kind
from queuewise.cluster.spec import Cluster, NodeGroup, VirtualCluster, build

__all__ = ["Cluster", "GpuKind", "NodeGroup", "VirtualCluster", "build", "gpu_kind", "load_cluster", "preset_names"]
