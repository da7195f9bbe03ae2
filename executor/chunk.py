"""A chunk: the consecutive layers of one virtual stage, built, split and sharded.

Sharding is torch's fully_shard, one unit a layer, under one root a chunk. The lattice of
degrees maps onto it so: the mesh shards over the optimizer's degree and replicates over the
rest; parameters of degree 1 stay gathered between forward and the last backward; gradients of
degree 1 are reduced only by the last micro-batch's backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ..kernels.dispatch import Dispatcher
from ..spec.errors import InputError
from ..spec.experts import experts_of
from ..spec.layer_legality import dtype_reason
from ..spec.model import EmbeddingLayer, HeadLayer, Layer
from ..spec.plan import Plan
from ..spec.stage_messages import entry_strategy
from ..spec.strategy import LayerStrategy
from ..spec.training import LayerTraining
from ..spec.workload import DtypeRecord
from .expert_shards import expert_placement
from .mesh import GroupBook
from .models.adapters import gradients_start
from .models.build import build_layer
from .models.ends import Head
from .models.layer import LayerBuild, LayerModule
from .models.weight_work import WeightWork
from .parameters import TIED_WEIGHT, TOKEN_WEIGHT, FirstValues, fill_layer
from .relayout import relayout
from .secondary import keep_pieces

if TYPE_CHECKING:
    from .build_options import BuildOptions
    from .live import LiveTechniques

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Chunk(nn.Module):
    """Layers of one virtual stage; maps tokens or activations to activations or the loss."""

    def __init__(
        self,
        layers: dict[int, LayerModule],
        strategies: dict[int, LayerStrategy],
        before: LayerStrategy | None,
        book: GroupBook,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): module for index, module in layers.items()})
        self.strategies = strategies
        self.before = before
        self.book = book
        self.live: LiveTechniques | None = None
        self.weight_work: dict[int, WeightWork] = {}
        """By layer, where the schedule splits the backward."""

    def forward(self, x: Tensor, targets: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Run the layers; with ``targets`` the last one is the head and gives the loss.

        Args:
            x: tokens (seq, batch) for the first chunk, else activations (seq, batch, hidden).
            targets: tokens to predict, this rank's part, for the chunk with the head.
            scale: factor on the summed loss.
        """
        before = self.before
        for index, module in self.layers.items():
            strategy = self.strategies[int(index)]
            if before is not None:
                x = relayout(x, before, strategy, self.book)
            if self.live is None or not self.live.hold(int(index)):
                x = module(x, targets, scale) if isinstance(module, Head) else module(x)
            else:
                with self._watched(self.live, int(index), x):
                    x = module(x, targets, scale) if isinstance(module, Head) else module(x)
            if not x.requires_grad and torch.is_grad_enabled():
                x = gradients_start(x)
            before = strategy
        return x

    @contextmanager
    def _watched(self, live: LiveTechniques, index: int, x: Tensor) -> Iterator[None]:
        """Around a layer that techniques are at work in; ``x`` is its input."""
        if x.requires_grad:
            x.register_hook(lambda grad: live.after_backward(index))  # type: ignore[no-untyped-call]
        with live.around_layer(index):
            yield

    def after_backward(self, first_reads: bool, last: bool) -> None:
        """Tell techniques of a micro-batch's backward that is over.

        Args:
            first_reads: whether the first layer reads tokens, which have no gradient.
            last: whether gradients are complete.
        """
        if self.live is None:
            return
        for index in sorted(self.strategies, reverse=True):
            if first_reads and index == min(self.strategies):
                self.live.after_backward(index)
            if last:
                self.live.gradients_ready(index)

    @property
    def has_head(self) -> bool:
        """Whether the last layer is the head."""
        return any(isinstance(module, Head) for module in self.layers.values())

    @property
    def last_strategy(self) -> LayerStrategy:
        """The strategy of the last layer, which decides the layout that leaves the chunk."""
        return self.strategies[max(self.strategies)]

    def units(self) -> list[tuple[FSDPModule, LayerStrategy]]:
        """The sharded layers with their strategies."""
        return [
            (module, self.strategies[int(index)])
            for index, module in self.layers.items()
            if isinstance(module, FSDPModule)
        ]

    def set_last_micro_batch(self, last: bool) -> None:
        """Arm the next backward: only the last one reduces and frees what waits for it."""
        for unit, strategy in self.units():
            shard = strategy.shard
            unit.set_requires_gradient_sync(last or shard.reduces_each_micro_batch, recurse=False)
            unit.set_reshard_after_backward(last or shard.gathers_each_use, recurse=False)


def needs_sharding_wrapper(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> bool:
    """Whether a layer has anything to gather, reduce or cast; plain modules otherwise."""
    if experts_of(layer) is not None and strategy.expert_data_parallel(stage_ranks) > 1:
        return True
    return strategy.state_ranks(stage_ranks) > 1 or dtype.param != dtype.master


def build_chunk(
    plan: Plan,
    number: int,
    book: GroupBook,
    options: BuildOptions,
    kernels: Dispatcher,
) -> Chunk:
    """Build, fill, split and shard the layers of this stage's chunk ``number`` on this rank.

    Each layer is sharded as soon as it is built, so a rank never holds more than its part and
    one whole layer.
    """
    dtype = plan.workload.dtype
    policy = _precision(dtype)
    layers = _own_layers(plan, number, book)
    tied = _tied_ends(plan, layers)
    trainings = plan.workload.layer_trainings(plan.model)
    wrapped = {
        index
        for index, layer, strategy in layers
        if needs_sharding_wrapper(layer, strategy, book.stage_ranks, dtype)
        and (trainings[index].trains or strategy.shard.optimizer > 1)
    }
    splits = plan.program.splits_backward
    later = {index: WeightWork() for index, _, _ in layers if splits}
    modules: dict[int, LayerModule] = {}
    units: list[FSDPModule] = []
    for index, layer, strategy in layers:
        modules[index] = _build_module(
            plan, index, layer, strategy, trainings[index], book, later.get(index), options, kernels
        )
        members = [modules[index]]
        if tied is not None and index == tied[1]:
            members = [modules[i] for i in tied]
            _tie(*members)
        if index in wrapped and (tied is None or index != tied[0]):  # joins the head's unit
            units.append(_shard_unit(members, strategy, book, policy, layer))
    strategies = {index: strategy for index, _, strategy in layers}
    chunk = Chunk(modules, strategies, entry_strategy(plan, book.stage, number), book)
    chunk.weight_work = later
    if units:
        plain = {p for i in strategies if i not in wrapped for p in modules[i].parameters()}
        plain |= {p for i in wrapped for p in _left_alone(modules[i], strategies[i])}
        mesh = book.data_mesh(layers[0][2])
        fully_shard(chunk, mesh=mesh, mp_policy=policy, ignored_params=plain)
    if not options.prefetch:
        for unit in units:  # a unit that prefetches itself prefetches nothing
            unit.set_modules_to_backward_prefetch([unit])
    return chunk


def _own_layers(
    plan: Plan, number: int, book: GroupBook
) -> tuple[tuple[int, Layer, LayerStrategy], ...]:
    """Layers of a chunk with the strategies of this rank's device group."""
    parts = plan.program.stages[book.stage].virtual_stages[number]
    own = (
        replace(part, strategy=part.by_device_group.get(book.device_group, part.strategy))
        for part in parts
    )
    return plan.chunk_layers(tuple(own))


def _build_module(
    plan: Plan,
    index: int,
    layer: Layer,
    strategy: LayerStrategy,
    training: LayerTraining,
    book: GroupBook,
    later: WeightWork | None,
    options: BuildOptions,
    kernels: Dispatcher,
) -> LayerModule:
    experts = book.expert_ranks(strategy)
    seq_len = plan.workload.seq_len
    tp = replace(book.tensor_parallel(strategy), later=later)
    build = LayerBuild(
        tp=tp,
        kernels=kernels,
        recompute=strategy.recompute,
        flash=options.flash,
        seq_len=seq_len,
        sequence=book.sequence_split(strategy, seq_len),
        experts=experts,
    )
    module = build_layer(layer, build)
    values = FirstValues(options.values, options.seed)
    fill_layer(
        module,
        plan.model,
        index,
        layer,
        tp,
        experts,
        seq_len,
        values,
        options.device,
        training,
        TORCH_DTYPES[plan.workload.dtype.param],
    )
    for run in options.techniques.of(strategy):
        run.prepare(module, strategy, options)
    return module


def _tied_ends(
    plan: Plan, layers: tuple[tuple[int, Layer, LayerStrategy], ...]
) -> tuple[int, int] | None:
    """The embedding and the head that share a weight, where both are in this chunk."""
    ends = [i for i, layer, _ in layers if isinstance(layer, (EmbeddingLayer, HeadLayer))]
    if not plan.model.tie_embeddings or len(ends) < 2:
        return None
    return ends[0], ends[1]


def _tie(embedding: LayerModule, head: LayerModule) -> None:
    """Make the head use the embedding's weight."""
    weight = embedding.slot(TOKEN_WEIGHT.split(".")[0]).weight
    head.slot(TIED_WEIGHT.split(".")[0]).weight = weight


def _shard_unit(
    members: list[LayerModule],
    strategy: LayerStrategy,
    book: GroupBook,
    policy: MixedPrecisionPolicy,
    layer: Layer,
) -> FSDPModule:
    """Layers gathered and reduced together, their parameters cut to this rank's shards."""
    has_experts = experts_of(layer) is not None
    unit: Any = fully_shard(
        members if len(members) > 1 else members[0],  # type: ignore[arg-type]
        mesh=book.data_mesh(strategy),
        reshard_after_forward=strategy.shard.gathers_each_use,
        mp_policy=policy,
        ignored_params={p for module in members for p in _left_alone(module, strategy)},
        shard_placement_fn=expert_placement(members[0], strategy, book) if has_experts else None,
    )
    found: FSDPModule = unit[0] if isinstance(unit, list) else unit
    _sum_gradients(found)
    if strategy.shard.secondary_parameters > 1:
        keep_pieces(found, book.secondary_mesh(strategy))
    return found


def _left_alone(module: LayerModule, strategy: LayerStrategy) -> list[nn.Parameter]:
    """Frozen parameters that every rank holds whole: nothing of them is gathered or reduced."""
    if strategy.shard.optimizer > 1:
        return []
    return [p for p in module.parameters() if not p.requires_grad]


def _sum_gradients(unit: FSDPModule) -> None:
    """Reduce by plain sums: the loss already carries one over the global tokens."""
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)


def _precision(dtype: DtypeRecord) -> MixedPrecisionPolicy:
    if reason := dtype_reason(dtype):
        raise InputError("workload.dtype", reason, "formats that the executor runs")
    return MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[dtype.param],
        reduce_dtype=TORCH_DTYPES[dtype.communication],
        cast_forward_inputs=False,
    )
