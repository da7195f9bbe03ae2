"""Sharding of experts over other ranks than the layer's dense parameters.

One unit gathers and reduces both, each over its own ranks. fully_shard takes a mesh per parameter
by names that are not public yet, used only here.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.distributed.fsdp._fully_shard._fsdp_common import (
    FSDPMeshInfo,
    HSDPMeshInfo,
    ShardPlacementResult,
)
from torch.distributed.tensor import Shard

from ...spec.parallel.rank_groups import expert_shard_group
from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from ..models.layer import LayerModule, iter_slots

EXPERT_PREFIX = "experts_"
"""Prefix of the names of experts' parameters."""


def expert_placement(
    module: LayerModule, strategy: LayerStrategy, process_groups: ProcessGroups
) -> Callable[[nn.Parameter], ShardPlacementResult | None]:
    """fully_shard's placement of a layer's parameters; None: the layer's mesh."""
    mesh = process_groups.expert_mesh(strategy)
    if mesh.ndim == 1:
        info = FSDPMeshInfo(mesh, shard_mesh_dim=0)
    else:
        info = HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
    experts = _expert_parameters(module)

    def place(parameter: nn.Parameter) -> ShardPlacementResult | None:
        return ShardPlacementResult(Shard(0), info) if parameter in experts else None

    return place


def _expert_parameters(module: LayerModule) -> set[nn.Parameter]:
    slots = (slot for name, slot in iter_slots(module) if name.startswith(EXPERT_PREFIX))
    return {parameter for slot in slots for parameter in slot.parameters()}


def ignored_parameters(
    module: LayerModule, strategy: LayerStrategy, stage_ranks: int
) -> set[nn.Parameter]:
    """Frozen unsharded parameters, neither gathered nor reduced."""
    frozen = {p for p in module.parameters() if not p.requires_grad}
    if strategy.shard.optimizer == 1:
        return frozen
    if expert_shard_group(strategy, stage_ranks).size == 1:
        return frozen & _expert_parameters(module)
    return set()
