# SPDX-License-Identifier: MIT
"""The cost model of bench/scale.py: the time of a step on n devices.

A message over a link takes alpha + bytes/beta. Computing takes c0 + c1·rows on each device; c0 is the
time that a step takes independently of its rows. Every quantity that was not measured is a named
parameter.
"""

from dataclasses import dataclass
from math import ceil, log2


@dataclass
class Link:
    """A connection. alpha: latency of a message in seconds; beta: bytes per second."""
    name: str
    alpha: float
    beta: float


@dataclass
class Network:
    """The network that is divided among devices. All sizes but that of the parameters are for one image."""
    name: str
    parameters: int       # size of all parameters in bytes
    cut: float            # bytes of activations in the middle of the network, which a pipeline sends on
    sums: list            # bytes of each activation that tensor splitting must sum in the forward pass
    depth: int            # number of layers; a pipeline can be cut between any two


@dataclass
class Device:
    """A device. A step takes c0 + c1·rows seconds, times `crowd` if all devices of the host compute."""
    c0: float
    c1: float
    crowd: float = 1.0
    per_host: int = 1

    def compute(self, rows, busy=1):
        return (self.c0 + self.c1 * rows) * (self.crowd if busy > 1 else 1)


def all_reduce(n, size, link):
    """Seconds of an all-reduce: with the number of messages of a ring, 2(n-1), or of recursive halving and doubling,
    whichever is smaller."""
    if n < 2:
        return 0.0
    return messages(n) * link.alpha + volume(n, size) / link.beta


def messages(n):
    return min(2 * (n - 1), 2 * ceil(log2(n)))


def volume(n, size):
    """Bytes that each device sends in an all-reduce."""
    return 2 * (n - 1) / n * size


def fit_link(name, merges):
    """A link fitted to measured merges, [(n, size, seconds)]."""
    alpha, c1 = line_fit([(volume(n, size) / messages(n), seconds / messages(n)) for n, size, seconds in merges])
    return Link(name, alpha, 1 / c1)


def merge(n, size, inside, between, per_host):
    """Seconds of a merge over several hosts: an all-reduce within each host, and one between the hosts."""
    local = min(n, per_host)
    hosts = ceil(n / per_host)
    return all_reduce(local, size, inside) + all_reduce(hosts, size, between)


def data_parallel(network, device, n, batch, inside, between):
    rows = max(batch / n, 1)
    return (device.compute(rows, min(n, device.per_host)) +
            merge(n, network.parameters, inside, between, device.per_host))


def pipeline(network, device, n, batch, stages, inside, between, micro):
    """Seconds of a step with pipelines. In a pipeline each of `stages` devices holds a part of the network. The rows
    are cut into `micro` parts, which the devices pass on one after another. The minibatch is divided among
    n/stages pipelines, which merge their gradients."""
    replicas = n // stages
    rows = batch / replicas
    link = between if stages > device.per_host else inside
    part = (device.c0 + device.c1 * rows / micro) * device.crowd / stages
    part = max(part, device.c0 / network.depth)  # a stage has at least one layer
    send = 2 * (link.alpha + network.cut * rows / micro / link.beta)  # activations forward and gradients back
    return ((micro + stages - 1) * (part + send) +
            merge(replicas, network.parameters / stages, inside, between, device.per_host))


def tensor(network, device, n, batch, ways, inside, between):
    """Seconds of a step with tensor splitting: `ways` devices hold a slice of each layer, and sum activations in the
    forward and the backward pass."""
    replicas = n // ways
    rows = batch / replicas
    link = between if ways > device.per_host else inside
    adding = sum(2 * all_reduce(ways, a * rows, link) for a in network.sums)
    return (device.c0 + device.c1 * rows / ways * device.crowd + adding +
            merge(replicas, network.parameters / ways, inside, between, device.per_host))


def line_fit(points):
    """c0, c1 >= 0 of y = c0 + c1·x with the least squared *relative* error."""
    w = [(x, y, 1 / (y * y)) for x, y in points]
    s, sx, sy = sum(k for *_, k in w), sum(x * k for x, _, k in w), sum(y * k for _, y, k in w)
    sxx, sxy = sum(x * x * k for x, _, k in w), sum(x * y * k for x, y, k in w)
    c1 = (s * sxy - sx * sy) / (s * sxx - sx * sx)
    c0 = (sy - c1 * sx) / s
    if c0 < 0:
        c0, c1 = 0.0, sxy / sxx
    return c0, c1
