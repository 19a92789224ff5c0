"""`hosts`: scores every host that can take tasks of the job being placed.

A host encoder, a job encoder, and attention of the job over all hosts: a weighted mean, so twice the hosts of every
kind change nothing. Sizes do not depend on the number of hosts, so weights trained on 50 hosts decide for 500. For the
same reason scores do not see features that count jobs or are relative to the whole cluster (`COUNTED`): in a cluster
ten times as large, those take values never seen before. The value sees everything. The encoding of a host is a product
of two linear layers, because its free capacity is its size times a share.
"""

from __future__ import annotations

from queuewise.policies.networks.layers import LayerList, Layers, NetworkSizes, ObservationShapes

PROBLEMS = frozenset({"host"})
COUNTED = frozenset({"queue_length", "beyond_window", "running", "size", "ways", "share_of_free"})


def list_layers(problem: str, layout: ObservationShapes, sizes: NetworkSizes, outputs: int) -> Layers:
    width = sizes.width
    net = LayerList(layout)
    placed = net.add_layer("placed", "jobs", column=layout.job_features.index("current"))
    state = net.summary()
    inputs = (*layout.job_features, *net.summary_features())
    counted = [index for index, name in enumerate(inputs) if name in COUNTED]
    seen_by_job = net.add_layer("scale", net.add_layer("concat", placed, state), weights="steady", shape=(len(inputs),), zero=counted)
    job = net.relu(net.linear("job", seen_by_job, width))
    hosts = net.add_layer("multiply", net.linear("host", "hosts", width), net.linear("gain", "hosts", width, 1.0, offset=1.0))
    found = net.linear("found", net.attend(job, net.relu(hosts), sizes), width, bias=False)
    context = net.add(job, found)
    hidden = net.relu(net.add(net.choose(hosts), context))
    seen = net.relu(context)
    return net.heads(hidden, seen, net.add_layer("concat", seen, state), sizes, outputs)
