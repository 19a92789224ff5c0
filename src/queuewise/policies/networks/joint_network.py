"""`joint`: scores every legal pair of a job and a host, from their encodings and a summary of the state."""

from __future__ import annotations

from queuewise.policies.networks.layers import LayerList, Layers, NetworkSizes, ObservationShapes

PROBLEMS = frozenset({"joint"})


def list_layers(problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int) -> Layers:
    net = LayerList(layout)
    state = net.summary()
    job = net.choose(net.linear("job", "jobs", sizes.width))
    host = net.choose(net.linear("host", "hosts", sizes.width, bias=False))
    context = net.linear("context", state, sizes.width, bias=False)
    return net.heads(net.relu(net.add(net.add(job, host), context)), state, state, sizes, outputs)
