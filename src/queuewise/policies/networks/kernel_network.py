"""`kernel`: one small scorer, shared by all choices, that reads the features of a job and a summary of the state.

After the kernel network of RLScheduler (Zhang et al., SC 2020), which sees only the job.
"""

from __future__ import annotations

from queuewise.policies.networks.layers import LayerList, Layers, NetworkSizes, ObservationShapes

PROBLEMS = frozenset({"job"})


def list_layers(problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int) -> Layers:
    net = LayerList(layout)
    state = net.summary()
    job = net.options(sizes.width)
    context = net.linear("context", state, sizes.width, bias=False)
    return net.heads(net.relu(net.add(job, context)), state, state, sizes, outputs)
