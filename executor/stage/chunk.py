"""A chunk: one virtual stage's consecutive layers, built, split and sharded.

Sharding is torch's fully_shard, one unit per layer under one root per chunk. The lattice of degrees
maps onto it: the mesh shards over the optimizer's degree and replicates over the rest; parameters
of degree 1 stay gathered between forward and the last backward; gradients of degree 1 are reduced
only by the last micro-batch's backward; other degrees are in ``nested_degrees``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ...kernels.dispatch import Dispatcher
from ...spec.errors import InputError
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import HeadLayer, Layer
from ...spec.model.towers import LayerContext, layer_contexts, shared_tables
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import as_built
from ...spec.plan.stage_messages import entry_strategy
from ...spec.rules.layer_rules import unsupported_dtype
from ...spec.strategy import LayerStrategy
from ...spec.workload.training import LayerTraining
from ...spec.workload.workload import DtypeRecord
from ..groups.process_groups import ProcessGroups
from ..models.block import Block
from ..models.build import HEADS, build_layer
from ..models.deferred_gradients import DeferredGradients
from ..models.heads import Head
from ..models.layer import LayerBuild, LayerModule
from ..models.lora import backward_boundary
from . import nested_degrees
from .expert_shards import expert_placement, ignored_parameters
from .hpz import keep_secondary_shards
from .initial_weights import TIED_WEIGHT, TOKEN_WEIGHT, InitialWeights, fill_layer
from .redistribute import redistribute
from .side_inputs import SideInputs

if TYPE_CHECKING:
    from .options import BuildOptions
    from .technique_hooks import TechniqueHookList

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Chunk(nn.Module):
    """Layers of one virtual stage; tokens or activations to activations or loss."""

    def __init__(
        self,
        layers: dict[int, LayerModule],
        strategies: dict[int, LayerStrategy],
        before: LayerStrategy | None,
        process_groups: ProcessGroups,
        contexts: tuple[LayerContext, ...],
        layer_specs: dict[int, Layer],
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): module for index, module in layers.items()})
        self.strategies = strategies
        self.before = before
        self.process_groups = process_groups
        self.contexts = contexts
        self.layer_specs = layer_specs
        self.technique_hooks: TechniqueHookList | None = None
        self.deferred_gradients: dict[int, DeferredGradients] = {}
        """By layer, where the schedule splits the backward."""

    def forward(
        self,
        inputs: tuple[Tensor, ...],
        feeds: Mapping[int, Tensor],
        targets: Tensor | None = None,
        scale: float = 1.0,
    ) -> tuple[Tensor, ...]:
        """Run the layers; with ``targets`` return the loss alone.

        Args:
            inputs: the previous chunk's activations (seq, batch, hidden), unless a tower begins
                here, and other towers' outputs.
            feeds: data for layers that begin a tower, by number.
            targets: this rank's targets, if the chunk has the last layer.
            scale: factor on the summed loss.
        """
        before, first = self.before, min(self.strategies)
        incoming = self.contexts[first].sources
        x = inputs[0] if len(inputs) > len(incoming) else None
        side_inputs = SideInputs(self.contexts, incoming, inputs[len(inputs) - len(incoming) :])
        del inputs
        for key, module in self.layers.items():
            index, context = int(key), self.contexts[int(key)]
            strategy = self.strategies[index]
            if before is not None:
                side_inputs.redistribute(before, strategy, self.process_groups)
            if context.begins_tower:
                x = feeds[index]
            elif before is not None and x is not None:
                x = redistribute(x, before, strategy, self.process_groups)
            if x is None:
                raise RuntimeError(f"nothing came to layer {index}")
            if self.technique_hooks is None or not self.technique_hooks.is_active(index):
                x = self._run(module, index, x, side_inputs, targets, scale)
            else:
                with self._with_technique_hooks(self.technique_hooks, index, x):
                    x = self._run(module, index, x, side_inputs, targets, scale)
            if not x.requires_grad and torch.is_grad_enabled():
                x = backward_boundary(x)
            before = strategy
            side_inputs.after_layer(index, x)
        last = max(self.strategies)
        if x is None or (not self.has_head and self.contexts[last + 1].begins_tower):
            return side_inputs.outgoing(last)
        return (x, *side_inputs.outgoing(last))

    @staticmethod
    def _run(
        module: nn.Module,
        index: int,
        x: Tensor,
        side_inputs: SideInputs,
        targets: Tensor | None,
        scale: float,
    ) -> Tensor:
        """Run one layer, keeping a bias that it makes for later ones."""
        out: Any
        if isinstance(module, HEADS):
            out = module(x, targets, scale)
        elif isinstance(module, Block):
            out = module(x, *module.given(side_inputs.read(index), side_inputs.bias))
            if module.makes_bias:
                out, side_inputs.bias = out
        else:
            out = module(x)
        output: Tensor = out
        return output

    @contextmanager
    def _with_technique_hooks(
        self, technique_hooks: TechniqueHookList, index: int, x: Tensor
    ) -> Iterator[None]:
        if x.requires_grad:
            x.register_hook(lambda grad: technique_hooks.after_backward(index))  # type: ignore[no-untyped-call]
        with technique_hooks.around_layer(index):
            yield

    def after_backward(self, reads: bool, last: bool) -> None:
        """Call techniques' hooks after a micro-batch's backward.

        ``reads``: it passed layers that read data; ``last``: gradients are complete.
        """
        if self.technique_hooks is None:
            return
        for index in sorted(self.strategies, reverse=True):
            if reads and self.contexts[index].begins_tower:  # it reads data, which have no gradient
                self.technique_hooks.after_backward(index)
            if last:
                self.technique_hooks.gradients_ready(index)

    @property
    def has_head(self) -> bool:
        """True if the last layer computes the loss."""
        return self.loss_replicas > 0

    @property
    def loss_replicas(self) -> int:
        """Tensor-parallel ranks with the same loss; 0 without the last layer."""
        ends = (module for module in self.layers.values() if isinstance(module, HEADS))
        return sum(module.loss_replicas for module in ends)

    @property
    def data_layers(self) -> tuple[int, ...]:
        """Layers that begin a tower and read data."""
        return tuple(index for index in self.strategies if self.contexts[index].begins_tower)

    @property
    def last_strategy(self) -> LayerStrategy:
        """Strategy of the last layer, which fixes the output's layout."""
        return self.strategies[max(self.strategies)]

    def units(self) -> list[tuple[FSDPModule, LayerStrategy]]:
        """Sharded layers with their strategies."""
        return [
            (module, self.strategies[int(index)])
            for index, module in self.layers.items()
            if isinstance(module, FSDPModule)
        ]

    def begin_step(self) -> None:
        """Forget what was gathered of the last step's weights."""
        for unit, _ in self.units():
            nested_degrees.begin_step(unit)

    def set_last_micro_batch(self, last: bool) -> None:
        """Arm the next backward: only the last one reduces and frees."""
        for unit, strategy in self.units():
            shard = strategy.shard
            unit.set_requires_gradient_sync(last or shard.reduces_each_micro_batch, recurse=False)
            unit.set_reshard_after_backward(last or shard.gathers_each_use, recurse=False)
            nested_degrees.set_last_micro_batch(unit, last)


def needs_sharding_wrapper(
    layer: Layer, strategy: LayerStrategy, reduced_ranks: int, dtype: DtypeRecord
) -> bool:
    """True if a layer gathers, reduces or casts; else a plain module.

    ``reduced_ranks`` of its stage sum gradients.
    """
    if experts_of(layer) is not None and strategy.expert_data_parallel(reduced_ranks) > 1:
        return True
    return strategy.state_ranks(reduced_ranks) > 1 or dtype.param != dtype.master


def build_chunk(
    plan: Plan,
    number: int,
    process_groups: ProcessGroups,
    options: BuildOptions,
    kernels: Dispatcher,
) -> Chunk:
    """Build, fill, split and shard this stage's chunk ``number``.

    Layers are sharded one by one: a rank holds at most its shards and one whole layer.
    """
    dtype = plan.workload.dtype
    policy = _precision(dtype)
    layers = _local_layers(plan, number, process_groups)
    tied = _tied_embeddings(plan, layers)
    trainings = plan.workload.layer_trainings(plan.model)
    wrapped = {
        index
        for index, layer, strategy in layers
        if needs_sharding_wrapper(layer, strategy, process_groups.reduced_ranks(strategy), dtype)
        and (trainings[index].trains or strategy.shard.optimizer > 1)
    }
    splits = plan.program.splits_backward
    deferred = {index: DeferredGradients() for index, _, _ in layers if splits}
    modules: dict[int, LayerModule] = {}
    units: list[FSDPModule] = []
    for index, layer, strategy in layers:
        modules[index] = _build_module(
            plan,
            index,
            layer,
            strategy,
            trainings[index],
            process_groups,
            deferred.get(index),
            options,
            kernels,
        )
        members = [modules[index]]
        if index in tied[-1:]:
            members = [modules[i] for i in tied]
            _tie(members)
        if index in wrapped and index not in tied[:-1]:  # those join the head's unit
            units.append(_shard_unit(members, strategy, process_groups, policy, layer))
    strategies = {index: strategy for index, _, strategy in layers}
    contexts = layer_contexts(plan.model, plan.workload.seq_len)
    before = entry_strategy(plan, process_groups.stage, number)
    layer_specs = {index: layer for index, layer, _ in layers}
    chunk = Chunk(modules, strategies, before, process_groups, contexts, layer_specs)
    chunk.deferred_gradients = deferred
    if units:
        plain = {p for i in strategies if i not in wrapped for p in modules[i].parameters()}
        ranks = process_groups.stage_ranks
        plain |= {p for i in wrapped for p in ignored_parameters(modules[i], strategies[i], ranks)}
        mesh = process_groups.data_mesh(layers[0][2])
        fully_shard(chunk, mesh=mesh, mp_policy=policy, ignored_params=plain)
    if not options.prefetch:
        for unit in units:  # a unit that prefetches itself prefetches nothing
            unit.set_modules_to_backward_prefetch([unit])
    return chunk


def _local_layers(
    plan: Plan, number: int, process_groups: ProcessGroups
) -> tuple[tuple[int, Layer, LayerStrategy], ...]:
    parts = plan.program.stages[process_groups.stage].virtual_stages[number]
    layer_plans = (
        replace(part, strategy=part.by_device_group.get(process_groups.device_group, part.strategy))
        for part in parts
    )
    layers = plan.chunk_layers(tuple(layer_plans))
    layer_specs = as_built(plan.model, [index for index, _, _ in layers])
    return tuple((index, layer_specs[index], strategy) for index, _, strategy in layers)


def _build_module(
    plan: Plan,
    index: int,
    layer: Layer,
    strategy: LayerStrategy,
    training: LayerTraining,
    process_groups: ProcessGroups,
    deferred: DeferredGradients | None,
    options: BuildOptions,
    kernels: Dispatcher,
) -> LayerModule:
    experts = process_groups.expert_ranks(strategy)
    seq_len = layer_contexts(plan.model, plan.workload.seq_len)[index].tokens
    tp = replace(process_groups.tensor_parallel(strategy), deferred=deferred)
    build = LayerBuild(
        tp=tp,
        kernels=kernels,
        recompute=strategy.recompute,
        flash=options.flash,
        seq_len=seq_len,
        sequence=process_groups.sequence_split(strategy, seq_len),
        experts=experts,
    )
    module = build_layer(layer, build)
    source = InitialWeights(options.weight_source, options.seed)
    fill_layer(
        module,
        plan.model,
        index,
        layer,
        tp,
        experts,
        seq_len,
        source,
        options.device,
        training,
        TORCH_DTYPES[plan.workload.dtype.param],
    )
    for run in options.techniques.of(strategy):
        run.prepare(module, strategy, options)
    return module


def _tied_embeddings(
    plan: Plan, layers: tuple[tuple[int, Layer, LayerStrategy], ...]
) -> tuple[int, ...]:
    """Tables tied to the head within this chunk; other copies stay separate."""
    tables = shared_tables(plan.model)
    ends = tuple(i for i, _, _ in layers if i in tables)
    return ends if len(ends) > 1 and isinstance(layers[-1][1], HeadLayer) else ()


def _tie(members: list[LayerModule]) -> None:
    weight = members[0].slot(TOKEN_WEIGHT.split(".")[0]).weight
    for member in members[1:]:
        name = TIED_WEIGHT if isinstance(member, Head) else TOKEN_WEIGHT
        member.slot(name.split(".")[0]).weight = weight


def _shard_unit(
    members: list[LayerModule],
    strategy: LayerStrategy,
    process_groups: ProcessGroups,
    policy: MixedPrecisionPolicy,
    layer: Layer,
) -> FSDPModule:
    """Shard layers as one FSDP unit, gathered and reduced together."""
    has_experts = experts_of(layer) is not None
    unit: Any = fully_shard(
        members if len(members) > 1 else members[0],  # type: ignore[arg-type]
        mesh=process_groups.data_mesh(strategy),
        reshard_after_forward=strategy.shard.gathers_each_use,
        mp_policy=policy,
        ignored_params={
            p
            for module in members
            for p in ignored_parameters(module, strategy, process_groups.stage_ranks)
        },
        shard_placement_fn=expert_placement(members[0], strategy, process_groups)
        if has_experts
        else None,
    )
    fsdp_unit: FSDPModule = unit[0] if isinstance(unit, list) else unit
    _sum_gradients(fsdp_unit)
    if strategy.shard.secondary_parameters > 1:
        keep_secondary_shards(fsdp_unit, strategy, process_groups)
    nested_degrees.nest_degrees(fsdp_unit, strategy, process_groups)
    return fsdp_unit


def _sum_gradients(unit: FSDPModule) -> None:
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)


def _precision(dtype: DtypeRecord) -> MixedPrecisionPolicy:
    if reason := unsupported_dtype(dtype):
        raise InputError("workload.dtype", reason, "formats that the executor runs")
    return MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[dtype.param],
        reduce_dtype=TORCH_DTYPES[dtype.communication],
        cast_forward_inputs=False,
    )
