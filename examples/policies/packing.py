"""Where pods go on a cluster with shared GPUs: a score of nodes with numbers for a search to find.

    queuewise evaluate --workload openb_pod_list_gpuspec33.csv --cluster openb --protocol packing \
        --policy fcfs+greedy@examples/policies/packing.py:fitting_node --policy fcfs+greedy@fgd

`python benchmarks/placement.py search` searches on other jobs than those of its tables. The numbers here are where it begins.
"""

PARAMS = [1.0, 0.5, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0]


def fitting_node(node, job, params):
    """The least score is filled first. What is left over is weighed by resource, and by how well it fits the next jobs."""
    gpus = max(node.gpus, 1.0)
    left_gpus = (node.free_gpus - job.gpus) / 8.0
    left_cores = (node.free_cores - job.cpus) / max(node.cores, 1.0)
    left_memory = (node.free_mem_mib - job.mem_mib) / max(node.mem_mib, 1.0)
    split = node.free_gpus - node.whole_gpus  # free parts of GPUs in shared use
    fits_split = 1.0 if 0.0 < job.gpus < 1.0 and split >= job.gpus else 0.0
    cores_per_gpu = left_cores * node.cores / max(node.free_gpus - job.gpus, 0.25) / 16.0 if node.gpus > 0.0 else 1.0
    empty = 1.0 if node.whole_gpus == node.gpus else 0.0
    without = 1.0 if job.gpus == 0.0 and node.gpus > 0.0 else 0.0  # a pod without GPUs on a node with some
    return (
        params[0] * left_gpus
        + params[1] * left_cores
        + params[2] * left_memory
        - params[3] * fits_split
        - params[4] * min(cores_per_gpu, 2.0)
        + params[5] * empty
        + params[6] * split / gpus
        + (1.0 + params[7]) * without
    )
