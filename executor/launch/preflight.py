"""Placement and memory of all ranks, checked before anything is built.

A node of the plan must be one host, or its intra-node groups would talk between hosts; a host may
stand for several nodes (a trial on one machine). Every rank needs its own device. Weights,
gradients and optimizer states must fit free memory; without activations, so passing is no proof.
"""

from __future__ import annotations

import math
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...spec.choices import RUN_MOMENTS
from ...spec.errors import RunError
from ...spec.model.layer_parameters import layer_parameters
from ...spec.model.towers import layer_contexts
from ...spec.plan.plan import Plan
from ...spec.technique import Values
from ...spec.technique_values import relocated_states
from ...spec.techniques import TECHNIQUES
from ...spec.units import format_bytes
from ...spec.workload.number_formats import DTYPE_BYTES
from ..host.process_memory import available_bytes
from .consistency import gather_json


class RankLocation(NamedTuple):
    """A rank's host, device (None for a core) and free bytes.

    ``free_bytes`` of a core are the host's, shared by all its ranks; None if unknown.
    """

    host: str
    device: int | None
    free_bytes: int | None


def preflight(plan: Plan, device: torch.device, techniques: Values = TECHNIQUES) -> None:
    """Refuse a run with misplaced ranks or too little memory. Collective.

    Raises:
        RunError: the same on every rank.
    """
    location = RankLocation(socket.gethostname(), device.index, free_bytes(device))
    locations = [RankLocation(*fields) for fields in gather_json(list(location), device)]
    check_locations(plan, locations, techniques)


def free_bytes(device: torch.device) -> int | None:
    """Bytes that a rank may still allocate; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes()


def check_locations(
    plan: Plan, places: Sequence[RankLocation], techniques: Values = TECHNIQUES
) -> None:
    """Check the ranks' locations against the plan.

    Raises:
        RunError: two ranks on one device, a node on two hosts, or too little room.
    """
    _check_devices(places)
    _check_nodes(plan, places)
    _check_memory(plan, places, techniques)


def _check_devices(places: Sequence[RankLocation]) -> None:
    taken: dict[tuple[str, int], int] = {}
    for rank, place in enumerate(places):
        if place.device is None:
            continue
        first = taken.setdefault((place.host, place.device), rank)
        if first != rank:
            raise RunError(
                f"ranks {first} and {rank} are both on CUDA device {place.device} of "
                f"{place.host}; start one rank a device (torchrun --nproc-per-node)"
            )


def _check_nodes(plan: Plan, places: Sequence[RankLocation]) -> None:
    first: dict[tuple[str, int], int] = {}
    for rank, node in enumerate(rank_nodes(plan)):
        before = first.setdefault(node, rank)
        if places[before].host != places[rank].host:
            count = plan.cluster.group(node[0]).devices_per_node
            raise RunError(
                f"ranks {before} and {rank} are on {places[before].host} and {places[rank].host}, "
                f"but the plan has them in one node; start the {count} ranks of a node on one "
                f"host (torchrun --nproc-per-node {count})"
            )


def rank_nodes(plan: Plan) -> list[tuple[str, int]]:
    """Device group and node number of each rank of a plan."""
    return [
        (part.device_group, place // plan.cluster.group(part.device_group).devices_per_node)
        for stage in plan.program.stages
        for part in stage.devices
        for place in range(part.first_rank, part.first_rank + part.count)
    ]


def _check_memory(plan: Plan, places: Sequence[RankLocation], techniques: Values) -> None:
    """Check free memory, which cores of a host share."""
    ranks_of = [n for n, stage in enumerate(plan.program.stages) for _ in range(stage.device_count)]
    needed = [
        min_bytes(plan, stage, place.device is None, techniques)
        for stage, place in zip(ranks_of, places, strict=True)
    ]
    shared: Mapping[Any, list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        shared[place.host if place.device is None else (place.host, place.device)].append(rank)
    for ranks in shared.values():
        free = places[ranks[0]].free_bytes
        wanted = sum(needed[rank] for rank in ranks)
        if free is not None and wanted > free:
            who = f"rank {ranks[0]}" if len(ranks) == 1 else f"the {len(ranks)} ranks"
            raise RunError(
                f"{who} on {places[ranks[0]].host} need at least {format_bytes(wanted)} for "
                f"weights, gradients and optimizer states, but {format_bytes(free)} are free; "
                "use more ranks, or shard more (--shard zero3)"
            )


def min_bytes(plan: Plan, stage: int, on_core: bool = True, techniques: Values = TECHNIQUES) -> int:
    """Least bytes of weights, gradients and optimizer states on a stage's rank.

    On a core (``on_core``) they include the host's states.
    """
    dtype = plan.workload.dtype
    weight, moments = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.moments]
    moments *= RUN_MOMENTS[plan.workload.optimizer]
    total, places = 0, layer_contexts(plan.model, plan.workload.seq_len)
    for parts in plan.program.stages[stage].virtual_stages:
        for index, layer, strategy in plan.chunk_layers(parts):
            moved = frozenset() if on_core else relocated_states(strategy, techniques)
            element_bytes = DTYPE_BYTES[dtype.gradient]
            element_bytes += 0 if "optimizer" in moved else moments
            element_bytes += 0 if "parameters" in moved else weight
            for spec in layer_parameters(layer, places[index].tokens):
                split = strategy.weight_split if spec.split_dim is not None else 1
                if spec.expert:
                    split = strategy.ep * strategy.etp
                total += (
                    math.ceil(spec.elements / (split * strategy.shard.optimizer)) * element_bytes
                )
    return total if plan.workload.trainable == "full" and not plan.workload.frozen else 0


__all__ = ["RankLocation", "check_locations", "free_bytes", "min_bytes", "preflight", "rank_nodes"]
