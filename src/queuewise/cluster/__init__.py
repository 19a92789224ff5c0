"""Clusters: nodes and their resources, a catalogue of GPU kinds, presets, and cluster files."""

from queuewise.cluster.cluster_loader import load_cluster, preset_names
from queuewise.cluster.gpus import GpuKind, gpu_kind
from queuewise.cluster.spec import Cluster, NodeGroup, VirtualCluster, build

__all__ = ["Cluster", "GpuKind", "NodeGroup", "VirtualCluster", "build", "gpu_kind", "load_cluster", "preset_names"]
