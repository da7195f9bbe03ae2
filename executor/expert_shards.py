"""Which ranks the experts of a sharded layer are cut over: others than its dense parameters.

One unit gathers and reduces both, each over its own ranks. fully_shard takes a mesh for each
parameter by names that are not public yet; they are used here and nowhere else.
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

from ..spec.strategy import LayerStrategy
from .mesh import GroupBook
from .models.layer import LayerModule, iter_slots

EXPERTS = "experts_"
"""What the names of experts' parameters begin with."""


def expert_placement(
    module: LayerModule, strategy: LayerStrategy, book: GroupBook
) -> Callable[[nn.Parameter], ShardPlacementResult | None]:
    """What tells fully_shard where each parameter of a layer goes; None: over the layer's mesh."""
    mesh = book.expert_mesh(strategy)
    if mesh.ndim == 1:
        info = FSDPMeshInfo(mesh, shard_mesh_dim=0)
    else:
        info = HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
    slots = (slot for name, slot in iter_slots(module) if name.startswith(EXPERTS))
    experts = {id(parameter) for slot in slots for parameter in slot.parameters()}

    def place(parameter: nn.Parameter) -> ShardPlacementResult | None:
        return ShardPlacementResult(Shard(0), info) if id(parameter) in experts else None

    return place
