"""Fewer bits on the wire: tried for every block, where lossy values are allowed.

Where states shard, weights in 8 bits; where parameters stay whole, 4-bit differences and gradients
in two hops, with the devices of this cluster's nodes; with a second copy, that in 8 bits, and
ZeRO++ with either. Where degrees nest, of what is sent once a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...spec.techniques.quantized_communication import (
    HPZ8,
    INT8,
    NAME,
    SDP4BIT,
    ZERO_PLUS_PLUS,
    QuantizedCommunication,
)
from ..technique import Place, TechniqueChoice


def node_ranks(place: Place) -> int:
    """Devices of a node; the usual number where the stage is inside a node of either size."""
    devices = place.simulator.pricer.machine.cluster.groups[0].devices_per_node
    usual = SDP4BIT.node_ranks
    return devices if usual % place.ranks or devices % place.ranks else usual


def tried(place: Place) -> Iterable[QuantizedCommunication]:
    """Named values, with this cluster's nodes; illegal ones are left out elsewhere."""
    if place.ranks == 1:
        return ()
    ranks = node_ranks(place)
    plus = replace(ZERO_PLUS_PLUS, node_ranks=ranks)
    return (
        INT8,
        replace(SDP4BIT, node_ranks=ranks),
        plus,
        HPZ8,
        replace(plus, second_copy=HPZ8.second_copy),
    )


TECHNIQUE = TechniqueChoice(name=NAME, tried=tried)
