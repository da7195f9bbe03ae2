"""Nested degrees: parameters or gradients over fewer ranks than the optimizer's states.

fully_shard has one degree for all states, the optimizer's. Its collectives are replaced by ones
that know the others, as ``costmodel.sharding.nested`` prices them (Dash et al., arXiv:2501.04266,
split weights over a pair of dies, gradients over a node, the optimizer over all). With degrees p
and o, rank r holds part r, and the piece of the p ranks' rank i is the parts i, i + p, i + 2p, ...
Once a step the o / p ranks with the same i gather it; every use gathers p pieces. Gradients go the
other way: every micro-batch reduces to pieces, which add up, and once a step they are reduced to
parts. Units of two parameter groups (experts) are reached below fully_shard's public surface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin

from ...spec.parallel.rank_groups import (
    RankGroup,
    expert_shard_group,
    inner_group,
    outer_group,
)
from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from ..torch_compat import all_gather_single, parameter_groups, reduce_scatter_single


class Hops(NamedTuple):
    """Ranks of an inner collective, None where it is one rank, and of the outer one."""

    inner: dist.ProcessGroup | None
    outer: dist.ProcessGroup

    @property
    def degrees(self) -> tuple[int, int]:
        """Sizes of the outer group and of the inner one."""
        return self.outer.size(), 1 if self.inner is None else self.inner.size()


class StepGather(DefaultAllocMixin, AllGather):
    """All-gather that keeps something until weights change."""

    def forget(self) -> None:
        """Drop what is kept: weights have changed."""
        raise NotImplementedError


class NestedGather(StepGather):
    """All-gather of a unit from pieces, which stay from a step's first use to its last.

    ``outer`` gathers a piece: a technique may send it in its own way.
    """

    def __init__(self, hops: Hops) -> None:
        self.outer: Callable[..., Any] = all_gather_single
        self._hops = hops
        self._ranks = hops.degrees[0] * hops.degrees[1]
        self._piece: Tensor | None = None

    def forget(self) -> None:
        """Drop the piece: weights have changed."""
        self._piece = None

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather all parts, in order; a second copy's gathers, over fewer ranks, are plain."""
        if group.size() != self._ranks:
            work: dist.Work | None = all_gather_single(output_tensor, input_tensor, group=group)
            return work
        outer, inner = self._hops.degrees
        if self._piece is None:
            self._piece = input_tensor.new_empty(outer * input_tensor.numel())
            self.outer(self._piece, input_tensor, group=self._hops.outer)
        if self._hops.inner is None:
            output_tensor.copy_(self._piece)
            return None
        pieces = torch.empty_like(output_tensor)
        all_gather_single(pieces, self._piece, group=self._hops.inner)
        ordered = pieces.view(inner, outer, -1).transpose(0, 1)
        output_tensor.view(outer, inner, -1).copy_(ordered)
        return None


class NestedReduction(DefaultAllocMixin, ReduceScatter):
    """Reduction of each micro-batch's gradients to pieces, and of their sum to parts.

    Before the last micro-batch its result is zero: fully_shard adds that to nothing. ``outer``
    reduces the sum: a technique may send it in its own way.
    """

    def __init__(self, hops: Hops) -> None:
        self.outer: Callable[..., Any] = reduce_scatter_single
        self._hops = hops
        self._sum: Tensor | None = None
        self.last = True

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Add this micro-batch's gradients; after the last one give this rank's part."""
        outer, inner = self._hops.degrees
        piece = input_tensor
        if self._hops.inner is not None:
            ordered = input_tensor.view(outer, inner, -1).transpose(0, 1).reshape(-1)
            piece = input_tensor.new_empty(outer * output_tensor.numel())
            reduce_scatter_single(piece, ordered, op=op, group=self._hops.inner)
        total = piece.float() if self._sum is None else self._sum.add_(piece)
        if not self.last:
            self._sum = total
            output_tensor.zero_()
            return None
        self._sum = None
        sent = total.to(output_tensor.dtype)
        self.outer(output_tensor, sent, op=op, group=self._hops.outer)
        return None


def nest_degrees(unit: FSDPModule, strategy: LayerStrategy, process_groups: ProcessGroups) -> None:
    """Give a unit collectives over the ranks of its parameters and of its gradients."""
    for group in parameter_groups(unit):
        dense = group.mesh_info.mesh is process_groups.data_mesh(strategy)
        degrees = _Degrees(strategy, process_groups, dense)
        shard = strategy.shard
        if shard.gathers_each_use and (hops := degrees.hops(shard.parameters)):
            group._all_gather_comm = NestedGather(hops)
        if shard.reduces_each_micro_batch and (hops := degrees.hops(shard.gradients)):
            group._reduce_scatter_comm = NestedReduction(hops)


def send_weights(unit: FSDPModule, gather: AllGather) -> None:
    """Gather a unit's weights in another way; where degrees nest, the step's pieces."""
    (group,) = parameter_groups(unit)
    if isinstance(group._all_gather_comm, NestedGather):
        group._all_gather_comm.outer = gather
    else:
        unit.set_custom_all_gather(gather)


def send_gradients(unit: FSDPModule, reduction: ReduceScatter) -> None:
    """Reduce a unit's gradients in another way; where degrees nest, their sum over a step."""
    (group,) = parameter_groups(unit)
    if isinstance(group._reduce_scatter_comm, NestedReduction):
        group._reduce_scatter_comm.outer = reduction
    else:
        unit.set_custom_reduce_scatter(reduction)


class _Degrees:
    """Process groups of a unit's dense parameters, or of its experts."""

    def __init__(self, strategy: LayerStrategy, process_groups: ProcessGroups, dense: bool) -> None:
        self._strategy = strategy
        self._process_groups = process_groups
        self._dense = dense

    def hops(self, degree: int) -> Hops | None:
        """Groups of a state of a layer's ``degree``; None if it is the optimizer's."""
        strategy, process_groups = self._strategy, self._process_groups
        if self._dense:
            whole = strategy.shard.optimizer
            shapes = inner_group(strategy, degree), outer_group(strategy, degree, whole)
            find = process_groups.group
        else:
            degree = strategy.expert_degree(degree, process_groups.stage_ranks)
            experts = expert_shard_group(strategy, process_groups.stage_ranks)
            whole = experts.size
            inner = RankGroup(degree, experts.stride)
            shapes = inner, RankGroup(whole // degree, experts.stride * degree)
            find = process_groups.expert_state_group
        if degree == whole:
            return None
        return Hops(find(shapes[0]) if degree > 1 else None, find(shapes[1]))


def begin_step(unit: FSDPModule) -> None:
    """Gather pieces anew in the next use: the last step changed the weights."""
    for group in parameter_groups(unit):
        if isinstance(group._all_gather_comm, StepGather):
            group._all_gather_comm.forget()


def set_last_micro_batch(unit: FSDPModule, last: bool) -> None:
    """Reduce to the optimizer's ranks, and over replicas, after the last micro-batch only."""
    for group in parameter_groups(unit):
        if isinstance(group._reduce_scatter_comm, NestedReduction):
            group._reduce_scatter_comm.last = last
            group.all_reduce_grads = last


__all__ = [
    "StepGather",
    "begin_step",
    "nest_degrees",
    "send_gradients",
    "send_weights",
    "set_last_micro_batch",
]
