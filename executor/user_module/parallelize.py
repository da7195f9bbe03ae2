"""``sw.parallelize(module, plan)``: in-place parallelization of a user's module.

Layers are sharded per their strategies by torch's ``fully_shard``, and recomputed where the plan
says so; everything outside them joins one unit. Gradients are means over data-parallel ranks, as in
torch's data parallelism, so a loop with a mean loss needs no change.

Tensor, context and expert parallelism, pipelines and techniques depend on what a layer computes;
they are refused by name.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer
from ...spec.plan.plan import Plan
from ...spec.strategy import LayerStrategy
from ..groups.rank_layout import plan_world_size
from ..stage.chunk import TORCH_DTYPES
from .layers import RepeatedLayers, find_layers

ModuleType = TypeVar("ModuleType", bound=nn.Module)
ALLOWED = "what a foreign module can follow: dp, sharding and full recomputation"


def parallelize(module: ModuleType, plan: Plan, *, layers: str | None = None) -> ModuleType:
    """Parallelize a module in place by a plan. Collective over all ranks.

    Args:
        module: the whole module on this rank's device, equal on every rank.
        plan: of a model with as many blocks as the module has layers; one stage.
        layers: dotted name of the list of layers; None to take the repeated ones.

    Returns:
        The module itself.

    Raises:
        InputError: a plan that the module cannot follow; nothing is changed then.
    """
    repeated = find_layers(module, layers)
    blocks, ends = _strategies(plan, repeated)
    meshes = _meshes(plan, [*blocks, ends])
    dtype = plan.workload.dtype
    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[dtype.param], reduce_dtype=TORCH_DTYPES[dtype.communication]
    )
    for block, strategy in zip(repeated.blocks, blocks, strict=True):
        if strategy.recompute == "full":
            _recompute(block)
        _shard(block, strategy, meshes, policy)
    _shard(module, ends, meshes, policy)
    return module


def last_micro_batch(module: nn.Module, plan: Plan, last: bool) -> None:
    """Mark, before each backward of a step, the step's last one.

    Where a plan keeps gradients whole over micro-batches (``shard.gradients`` 1) only the last
    backward reduces them; otherwise each does. ``module``: from :func:`parallelize`.
    """
    whole = all(not s.shard.reduces_each_micro_batch for s in plan.layer_strategies())
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last or not whole)


def _strategies(plan: Plan, repeated: RepeatedLayers) -> tuple[list[LayerStrategy], LayerStrategy]:
    """Strategies of the module's layers, and of everything outside them.

    Raises:
        InputError: another number of blocks, or decisions that the module cannot follow.
    """
    _check_shape(plan)
    pairs = list(zip(plan.model.layers(), plan.layer_strategies(), strict=True))
    blocks = [strategy for layer, strategy in pairs if isinstance(layer, BlockLayer)]
    ends = [strategy for layer, strategy in pairs if not isinstance(layer, BlockLayer)]
    if len(blocks) != len(repeated.blocks):
        allowed = f"{len(repeated.blocks)}, the layers of {repeated.name} (or name another list)"
        raise InputError("plan.model", f"{len(blocks)} blocks", allowed)
    for strategy in dict.fromkeys([*blocks, *ends]):
        if reason := _unsupported(strategy):
            raise InputError("plan", reason, ALLOWED, "--pin tp=1 --pin pp=1")
    if len({strategy.shard for strategy in ends}) > 1:
        conflict = "another sharding for the embedding than for the head"
        raise InputError("plan: shard", conflict, "one for all that stands outside the layers")
    if len({s.shard.reduces_each_micro_batch for s in [*blocks, *ends]}) > 1:
        conflict = "gradients summed whole in some layers and sharded in others"
        raise InputError("plan: shard", conflict, "one of both for all layers of a foreign module")
    return blocks, ends[0]


def _check_shape(plan: Plan) -> None:
    stages = len(plan.program.stages)
    if stages > 1:
        raise InputError("plan: pp", stages, "1 for a foreign module", "--pin pp=1")
    ranks, started = plan_world_size(plan), dist.get_world_size()
    if ranks != started:
        raise InputError("plan", f"{ranks} ranks", f"{started}, the ranks that were started")


def _unsupported(strategy: LayerStrategy) -> str | None:
    """Return the reason a foreign layer cannot follow a strategy, or None."""
    for name in ("tp", "cp", "ep", "etp"):
        if getattr(strategy, name) > 1:
            return f"{name} {getattr(strategy, name)}"
    if strategy.techniques:
        return "techniques " + ", ".join(strategy.techniques)
    if strategy.recompute not in ("none", "full"):
        return f"recompute {strategy.recompute}"
    shard = strategy.shard
    if shard.secondary_parameters != 1 or {shard.parameters, shard.gradients} - {
        1,
        shard.optimizer,
    }:
        return "states sharded over several degrees"
    return None


def _meshes(plan: Plan, strategies: list[LayerStrategy]) -> dict[int, DeviceMesh]:
    kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
    ranks = plan_world_size(plan)
    return {
        degree: init_device_mesh(kind, (ranks // degree, degree), mesh_dim_names=("rep", "shard"))
        for degree in sorted({strategy.shard.optimizer for strategy in strategies})
    }


def _recompute(block: nn.Module) -> None:
    """Keep only a layer's inputs; wrapping its forward preserves parameter names."""
    forward = partial(checkpoint, block.forward, use_reentrant=False)
    block.forward = forward


def _shard(
    module: nn.Module,
    strategy: LayerStrategy,
    meshes: dict[int, DeviceMesh],
    policy: MixedPrecisionPolicy,
) -> None:
    fully_shard(
        module,
        mesh=meshes[strategy.shard.optimizer],
        mp_policy=policy,
        reshard_after_forward=strategy.shard.gathers_each_use,
    )


__all__ = ["last_micro_batch", "parallelize"]
