"""A rank's parameters as plain local tensors.

Sharded parameters are DTensors over meshes that vary by layer; the optimizer, clipping and
tensor-parallel sums need only the local shard, its replicas, and whether its gradient is a partial
sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.towers import layer_contexts
from ...spec.parallel.rank_groups import (
    RankGroup,
    expert_group,
    expert_shard_group,
    expert_tensor_group,
    shard_group,
    tensor_group,
)
from ...spec.plan.plan import Plan
from ...spec.strategy import LayerStrategy
from ...spec.workload.training import parameters_with_adapters
from ..groups.process_groups import ProcessGroups
from ..models.layer import LayerModule
from ..torch_compat import all_gather_single
from .chunk import Chunk, needs_sharding_wrapper
from .initial_weights import parameter_name, tied_source


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParameter:
    """One parameter of this rank.

    ``data``: the shard that the optimizer updates and checkpoints save, sharing the module's
    storage unless a technique keeps it on the host; then ``device_tensor`` shares it, and the
    gradient goes to ``host_gradient``. ``replicas``: ranks of the stage with the same shard;
    ``tied``: a parameter shared with other chunks; ``in_norm``: false for copies left out of norms.
    """

    name: str
    layer: int
    spec: ParameterSpec
    strategy: LayerStrategy
    parameter: nn.Parameter
    data: Tensor
    replicas: int
    partial_gradient: bool
    tied: str | None
    in_norm: bool
    device_tensor: Tensor | None = None
    host_gradient: Tensor | None = None

    @property
    def on_host(self) -> bool:
        """True if the optimizer updates it in host memory."""
        return self.host_gradient is not None

    @property
    def trained(self) -> bool:
        """True if it has gradients and optimizer states."""
        return self.parameter.requires_grad

    @property
    def grad(self) -> Tensor | None:
        """The local gradient, None before the first backward."""
        grad = self.parameter.grad
        return grad.to_local() if isinstance(grad, DTensor) else grad


def local_parameters(
    plan: Plan, chunks: list[Chunk], process_groups: ProcessGroups
) -> list[LocalParameter]:
    """This rank's parameters in model order, frozen ones included.

    A weight tied in place appears once.
    """
    visited: set[int] = set()
    parameters: list[LocalParameter] = []
    contexts = layer_contexts(plan.model, plan.workload.seq_len)
    trainings = plan.workload.layer_trainings(plan.model)
    for chunk in chunks:
        for key, module in chunk.layers.items():
            index = int(key)
            layer, tokens = chunk.layer_specs[index], contexts[index].tokens
            for spec in parameters_with_adapters(layer, tokens, trainings[index]):
                holder, name = cast(LayerModule, module).holder(spec.name)
                parameter = getattr(holder, name)
                if id(parameter) not in visited:
                    visited.add(id(parameter))
                    strategy = chunk.strategies[index]
                    parameters.append(
                        _describe(plan, process_groups, index, spec, strategy, parameter)
                    )
    return parameters


def _describe(
    plan: Plan,
    process_groups: ProcessGroups,
    index: int,
    spec: ParameterSpec,
    strategy: LayerStrategy,
    parameter: nn.Parameter,
) -> LocalParameter:
    ranks = process_groups.stage_ranks
    layer = plan.model.layers()[index]
    reduced = process_groups.reduced_ranks(strategy)
    wrapped = needs_sharding_wrapper(layer, strategy, reduced, plan.workload.dtype)
    split = strategy.weight_split if spec.split_dim is not None else 1
    shards = strategy.shard.optimizer if wrapped else 1
    if spec.expert:
        split = strategy.ep * strategy.etp
        shards = expert_shard_group(strategy, ranks).size if wrapped else 1
    source, named = tied_source(plan.model, index, spec)
    name = parameter_name(source, named)
    # experts are split by degrees of their own, and never partial
    partial = strategy.weight_split > 1 and (
        spec.partial_gradient == "always"
        or (spec.partial_gradient == "sequence_parallel" and strategy.megatron_sp)
    )
    return LocalParameter(
        name=parameter_name(index, spec),
        layer=index,
        spec=spec,
        strategy=strategy,
        parameter=parameter,
        data=_local_data(parameter),
        replicas=ranks // (split * (shards if wrapped else 1)),
        partial_gradient=partial,
        tied=name if name in process_groups.tied else None,
        in_norm=name not in process_groups.tied or index == source,
    )


def _local_data(parameter: nn.Parameter) -> Tensor:
    data = parameter.detach()
    return data.to_local() if isinstance(data, DTensor) else data


def gather_full(local: LocalParameter, value: Tensor, process_groups: ProcessGroups) -> Tensor:
    """A whole parameter or gradient. Collective over its shards' ranks."""
    parameter, spec, strategy = local.parameter, local.spec, local.strategy
    if isinstance(parameter, DTensor):
        value = _gather_shards(local, parameter, value, process_groups)
    if spec.expert:
        value = value.view(spec.expert_shape(strategy.ep, strategy.etp))
        if spec.split_dim is not None:
            value = _gather_split(
                spec, spec.split_dim, value, process_groups, expert_tensor_group(strategy)
            )
        return _gather_split(spec, 0, value, process_groups, expert_group(strategy))
    if spec.split_dim is None or strategy.weight_split == 1:
        return value
    return _gather_split(spec, spec.split_dim, value, process_groups, tensor_group(strategy))


def _gather_shards(
    local: LocalParameter, parameter: DTensor, value: Tensor, process_groups: ProcessGroups
) -> Tensor:
    """Undo dimension-0 sharding: equal chunks of ceil(rows / shards), the last short."""
    strategy, is_expert = local.strategy, local.spec.expert
    shape = shard_group(strategy)
    if is_expert:
        shape = expert_shard_group(strategy, process_groups.stage_ranks)
    if shape.size == 1:
        return value
    rows = parameter.shape[0]
    chunk = -(-rows // shape.size)
    padded = torch.zeros((chunk, *value.shape[1:]), dtype=value.dtype, device=value.device)
    padded[: value.shape[0]] = value
    out = padded.new_empty((chunk * shape.size, *value.shape[1:]))
    group = process_groups.expert_state_group(shape) if is_expert else process_groups.group(shape)
    all_gather_single(out, padded, group=group)
    return out[:rows]


def _gather_split(
    spec: ParameterSpec, dim: int, value: Tensor, process_groups: ProcessGroups, shape: RankGroup
) -> Tensor:
    """A group's parts along ``dim``, joined."""
    if shape.size == 1:
        return value
    size = spec.shape[dim]
    part = -(-size // shape.size)
    moved = value.movedim(dim, 0).contiguous()
    padded = moved.new_zeros((part, *moved.shape[1:]))
    padded[: moved.shape[0]] = moved
    out = padded.new_empty((part * shape.size, *moved.shape[1:]))
    all_gather_single(out, padded, group=process_groups.group(shape))
    return out[:size].movedim(0, dim)
