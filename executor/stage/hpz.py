"""Secondary parameter shards for the backward pass: hpZ of ZeRO++ (arXiv:2306.10209).

After the forward pass each rank keeps a shard of the gathered parameters, so that the backward
gathers over few nearby ranks. fully_shard would make process groups for this layer by layer, which
would hang ranks of other stages; so it gets ours, below its public surface.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import HSDPMeshInfo

from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from ..torch_compat import parameter_groups


def keep_secondary_shards(
    unit: FSDPModule, strategy: LayerStrategy, process_groups: ProcessGroups
) -> None:
    """Keep a unit's secondary shards from forward until backward.

    Experts keep shards among ranks with the same experts, or none, and are then gathered as before
    the forward pass. ``unit`` is sharded and frees its parameters after forward.
    """
    for group in parameter_groups(unit):
        if group.mesh_info.mesh is process_groups.data_mesh(strategy):
            mesh: DeviceMesh | None = process_groups.secondary_mesh(strategy)
        else:
            mesh = process_groups.expert_secondary_mesh(strategy)
        if mesh is None:
            continue
        info = HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
        group.post_forward_mesh_info = info
        for parameter in group.fsdp_params:
            parameter.post_forward_mesh_info = info
            full = torch.empty(parameter._orig_size, device="meta")
            parameter._init_sharded_post_forward_param_metadata(full)


def drop_secondary_shards(unit: FSDPModule) -> None:
    """Free a unit's parameters after forward whole, as without a second copy."""
    for group in parameter_groups(unit):
        group.post_forward_mesh_info = group.mesh_info
        for parameter in group.fsdp_params:
            parameter.post_forward_mesh_info = group.mesh_info


__all__ = ["drop_secondary_shards", "keep_secondary_shards"]
