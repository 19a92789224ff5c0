"""`attn`: legal jobs attend to the cluster, which is one token per host and one per bin of the lookahead.

In a task with stops, the running jobs shown are tokens, too. A scorer shared by all choices reads the features of a job,
the result of its attention, and a summary of the state.
"""

from __future__ import annotations

from queuewise.policies.networks.layers import LOOKAHEAD_BINS, LayerList, Layers, NetworkSizes, ObservationShapes

PROBLEMS = frozenset({"job"})


def list_layers(problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int) -> Layers:
    width = sizes.width
    net = LayerList(layout)
    state = net.summary()
    job = net.options(width)
    jobs = net.relu(net.add(job, net.linear("context", state, width, bias=False)))
    host = net.linear("host", "hosts", width)
    future = net.linear("future", net.add_layer("column", net.bins()), width)
    future = net.add_layer("shift", future, weights="position", shape=(LOOKAHEAD_BINS, width))
    running = [net.linear("run", "running", width)] if layout.stops else []
    tokens = net.relu(net.add_layer("stack", host, future, *running))
    found = net.attend(jobs, tokens, sizes)
    jobs = net.add_layer("norm", net.add(jobs, found), weights="norm", shape=(width,))
    return net.heads(jobs, state, state, sizes, outputs)
