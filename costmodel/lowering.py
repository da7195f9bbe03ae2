"""Lowering a plan: the layers of each stage, with the units their parameters move in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..spec.model import EmbeddingLayer, HeadLayer, Layer, ModelSpec
from ..spec.passes import BackwardPart
from ..spec.plan import Plan
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy
from ..spec.training import LayerTraining
from ..spec.workload import Workload
from .layer_shape import LayerShape
from .lower import LoweredLayer, LoweredPass, lower_layer
from .sharding import Unit, lower_unit
from .unit_parts import UnitShape


@dataclass(frozen=True, slots=True)
class StageLayer:
    """One layer of a stage: where it is, what it costs a micro-batch, whose unit it belongs to.

    ``unit`` is None for an embedding whose parameters move with the head's.
    """

    index: int
    layer: Layer
    strategy: LayerStrategy
    lowered: LoweredLayer
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class StageChunk:
    """The layers of one virtual stage and the messages that cross its ends (0: none)."""

    layers: tuple[StageLayer, ...]
    receives_bytes: int
    sends_bytes: int

    def backward(self, number: int, first: bool, part: BackwardPart = "whole") -> LoweredPass:
        """Layer ``number``'s work going backward, in the first micro-batch or a later one.

        All of it, or one ``part`` where the schedule splits it.

        A later one adds its gradients to those that are there, unless its unit has reduced
        them away or keeps them in another number format. An embedding whose unit is not in
        this chunk adds nothing, which makes its work a lower bound.
        """
        entry = self.layers[number]
        unit = entry.unit or self.layers[-1].unit
        fresh = unit is None or unit.reduces_each_micro_batch or bool(unit.upcast)
        lowered = entry.lowered
        if part == "whole":
            return lowered.backward if first or fresh else lowered.accumulating_backward
        split = lowered.split_backward()
        if part == "input":
            return split.input if first or fresh else split.accumulating_input
        return split.weight if first or fresh else split.accumulating_weight


class Lowering:
    """Lowers the layers and units of one model, workload and stack, each kind once.

    Args:
        model: whose layers.
        workload: sequence length and number formats.
        stack: the software that runs them.
    """

    def __init__(self, model: ModelSpec, workload: Workload, stack: StackSpec) -> None:
        self.model = model
        self.workload = workload
        self.stack = stack
        self.layers = model.layers()
        self.trainings = workload.layer_trainings(model)
        numbers: dict[tuple[Layer, LayerTraining], int] = {}
        self.kinds = tuple(
            numbers.setdefault(kind, len(numbers))
            for kind in zip(self.layers, self.trainings, strict=True)
        )
        self._lowered: dict[tuple[object, ...], LoweredLayer] = {}
        self._units: dict[tuple[object, ...], Unit] = {}

    def layer(
        self,
        index: int,
        strategy: LayerStrategy,
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
        shares_weight: bool = False,
    ) -> LoweredLayer:
        """One layer's micro-batch on a rank.

        Args:
            index: the layer's number.
            strategy: its decisions.
            before: strategy of the layer that feeds it, None for the first.
            ranks: ranks of its stage.
            samples: samples of a micro-batch over the stage.
            shares_weight: whether its table is also the head's of its chunk.
        """
        split = split_only(strategy)
        layout = differing_layout(before, strategy)
        batch = samples // strategy.data_parallel(ranks)
        key = (self.kinds[index], split, layout, batch, shares_weight)
        if key not in self._lowered:
            shape = LayerShape(
                strategy=split,
                before=layout,
                batch=batch,
                seq_len=self.workload.seq_len,
                dtype=self.workload.dtype.param,
                stack=self.stack,
                shares_weight=shares_weight,
                matmul=self.workload.dtype.matmul,
                scaling=self.workload.dtype.scaling,
                training=self.trainings[index],
            )
            self._lowered[key] = lower_layer(self.layers[index], shape)
        return self._lowered[key]

    def unit(self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int) -> Unit:
        """The parameters of these layers under a strategy, as they move together."""
        kinds = tuple(self.kinds[i] for i in members)
        degrees = (strategy.tp, strategy.sequence_parallel, strategy.ep, strategy.etp)
        key = (kinds, degrees, strategy.shard, ranks)
        if key not in self._units:
            self._units[key] = lower_unit(
                UnitShape(
                    layers=tuple(self.layers[i] for i in members),
                    strategy=replace(strategy, recompute="none"),
                    stage_ranks=ranks,
                    seq_len=self.workload.seq_len,
                    dtype=self.workload.dtype,
                    stack=self.stack,
                )
            )
        return self._units[key]

    def chunk(
        self,
        layers: tuple[tuple[int, LayerStrategy], ...],
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
    ) -> StageChunk:
        """Consecutive layers of a virtual stage.

        Args:
            layers: layer numbers and strategies, in order.
            before: strategy of the layer before the first, None at the start of the model.
            ranks: ranks of the stage.
            samples: samples of a micro-batch over the stage.
        """
        tied = self._tied_ends(layers)
        found: list[StageLayer] = []
        for index, strategy in layers:
            shares = tied is not None and index == tied[0]
            lowered = self.layer(index, strategy, before, ranks, samples, shares)
            members = tied if tied is not None and index == tied[1] else (index,)
            unit = None if shares else self.unit(members, strategy, ranks)
            found.append(StageLayer(index, self.layers[index], strategy, lowered, unit))
            before = strategy
        first, last = found[0], found[-1]
        return StageChunk(
            tuple(found),
            receives_bytes=first.lowered.input_bytes if first.index else 0,
            sends_bytes=last.lowered.output_bytes,
        )

    def _tied_ends(self, layers: tuple[tuple[int, LayerStrategy], ...]) -> tuple[int, int] | None:
        """Embedding and head where they share a weight inside one chunk."""
        if not self.model.tie_embeddings:
            return None
        ends = [i for i, _ in layers if isinstance(self.layers[i], (EmbeddingLayer, HeadLayer))]
        return (ends[0], ends[1]) if len(ends) == 2 else None

    def stage(self, plan: Plan, stage: int) -> tuple[StageChunk, ...]:
        """Every chunk of a stage of a plan."""
        every = plan.layer_strategies()
        samples = plan.program.micro_batch_samples
        place = plan.program.stages[stage]
        found = []
        for parts in place.virtual_stages:
            layers = tuple((i, strategy) for i, _, strategy in plan.chunk_layers(parts))
            first = layers[0][0]
            before = every[first - 1] if first else None
            found.append(self.chunk(layers, before, place.device_count, samples))
        return tuple(found)


def differing_layout(before: LayerStrategy | None, strategy: LayerStrategy) -> LayerStrategy | None:
    """``before`` where it holds activations differently from ``strategy``, else None."""
    if before is None:
        return None
    if before.layout == strategy.layout:
        return None
    return LayerStrategy(tp=before.tp, sequence_parallel=before.sequence_parallel, cp=before.cp)


def split_only(strategy: LayerStrategy) -> LayerStrategy:
    """The part of a strategy that shapes a layer's own work; sharding is the unit's business."""
    return LayerStrategy(
        tp=strategy.tp,
        sequence_parallel=strategy.sequence_parallel,
        cp=strategy.cp,
        ep=strategy.ep,
        etp=strategy.etp,
        recompute=strategy.recompute,
    )
