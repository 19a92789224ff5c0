"""`mlp`: the whole observation goes through one trunk with a head for the scores and one for the value.

Slots and hosts are identified by position.
"""

from __future__ import annotations

from queuewise.policies.networks.layers import ROOT_2, SMALL, LayerList, Layers, NetworkSizes, ObservationShapes

PROBLEMS = frozenset({"job", "host", "joint"})


def list_layers(problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int) -> Layers:
    actions = layout.num_choices(problem) + 1
    net = LayerList(layout)
    hidden = net.relu(net.feedforward("trunk", "observation", sizes.hidden, ROOT_2))
    net.add_layer("mask", net.linear("score", hidden, actions * outputs, SMALL), output="scores", outputs=outputs)
    net.linear("value", hidden, outputs, 1.0, output="values")
    return net.finish()
