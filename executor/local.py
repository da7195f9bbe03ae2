"""The parameters that a rank holds, as plain local tensors.

Sharded parameters are DTensors over meshes that differ from layer to layer; the optimizer,
gradient clipping and the sums over tensor-parallel ranks only need the local part, who else
holds it, and whether its gradient is still a part of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..spec.parameters import ParameterSpec, layer_parameters
from ..spec.plan import Plan
from ..spec.strategy import LayerStrategy
from ..spec.towers import layer_places
from .chunk import Chunk, needs_sharding_wrapper
from .mesh import GroupBook
from .models.layer import LayerModule
from .parameters import parameter_name, tied_source
from .torch_api import all_gather_single


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParameter:
    """One parameter of this rank.

    ``data`` shares storage with the module's parameter; ``replicas`` ranks of the stage hold
    the same part; ``tied`` names a parameter that other chunks hold too, ``counts`` is false
    for the copies that norms leave out.
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
    counts: bool

    @property
    def grad(self) -> Tensor | None:
        """The local gradient, None before the first backward."""
        grad = self.parameter.grad
        return grad.to_local() if isinstance(grad, DTensor) else grad


def local_parameters(plan: Plan, chunks: list[Chunk], book: GroupBook) -> list[LocalParameter]:
    """This rank's parameters in the order of the model; a weight tied in place appears once."""
    seen: set[int] = set()
    found: list[LocalParameter] = []
    places = layer_places(plan.model, plan.workload.seq_len)
    for chunk in chunks:
        for key, module in chunk.layers.items():
            index = int(key)
            for spec in layer_parameters(chunk.kinds[index], places[index].tokens):
                holder, kind = cast(LayerModule, module).holder(spec.name)
                parameter = getattr(holder, kind)
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    strategy = chunk.strategies[index]
                    found.append(_describe(plan, book, index, spec, strategy, parameter))
    return found


def _describe(
    plan: Plan,
    book: GroupBook,
    index: int,
    spec: ParameterSpec,
    strategy: LayerStrategy,
    parameter: nn.Parameter,
) -> LocalParameter:
    split = strategy.tp if spec.split_dim is not None else 1
    wrapped = needs_sharding_wrapper(strategy, book.stage_ranks, plan.workload.dtype)
    shards = strategy.shard.optimizer if wrapped else 1
    source, named = tied_source(plan.model, index, spec)
    name = parameter_name(source, named)
    partial = strategy.tp > 1 and (
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
        replicas=book.stage_ranks // (split * shards),
        partial_gradient=partial,
        tied=name if name in book.tied else None,
        counts=name not in book.tied or index == source,
    )


def _local_data(parameter: nn.Parameter) -> Tensor:
    data = parameter.detach()
    return data.to_local() if isinstance(data, DTensor) else data


def gather_whole(local: LocalParameter, value: Tensor, book: GroupBook) -> Tensor:
    """A whole parameter or gradient from all ranks' parts; collective over shard and tp ranks."""
    parameter = local.parameter
    if isinstance(parameter, DTensor):
        value = _gather_shards(local, parameter, value, book)
    if local.spec.split_dim is None or local.strategy.tp == 1:
        return value
    return _gather_split(local, value, book)


def _gather_shards(
    local: LocalParameter, parameter: DTensor, value: Tensor, book: GroupBook
) -> Tensor:
    """Undo the dimension-0 sharding: equal chunks of ceil(rows / shards), the last ones short."""
    from ..spec.groups import shard_group

    shape = shard_group(local.strategy)
    if shape.size == 1:
        return value
    rows = parameter.shape[0]
    chunk = -(-rows // shape.size)
    padded = torch.zeros((chunk, *value.shape[1:]), dtype=value.dtype, device=value.device)
    padded[: value.shape[0]] = value
    out = padded.new_empty((chunk * shape.size, *value.shape[1:]))
    all_gather_single(out, padded, group=book.group(shape))
    return out[:rows]


def _gather_split(local: LocalParameter, value: Tensor, book: GroupBook) -> Tensor:
    from ..spec.groups import tensor_group

    dim = local.spec.split_dim or 0
    size = local.spec.shape[dim]
    part = -(-size // local.strategy.tp)
    moved = value.movedim(dim, 0).contiguous()
    padded = moved.new_zeros((part, *moved.shape[1:]))
    padded[: moved.shape[0]] = moved
    out = padded.new_empty((part * local.strategy.tp, *moved.shape[1:]))
    group = book.group(tensor_group(local.strategy))
    all_gather_single(out, padded, group=group)
    return out[:size].movedim(0, dim)
