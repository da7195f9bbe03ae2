"""Lowered layers of one virtual stage, and the messages at its ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...spec.model.model_spec import Layer
from ...spec.schedules.passes import BackwardPart
from ...spec.strategy import LayerStrategy
from ..sharding.fsdp_unit import FsdpUnit
from ..symbolic.lane_work import LaneWorks
from ..symbolic.lowered_pass import NO_PASS, LoweredPass
from .layer_lowering import LoweredLayer
from .stage_passes import PassKind
from .tower_outputs import ChunkTowerOutput


@dataclass(frozen=True, slots=True)
class StageLayer:
    """One layer of a stage: index, strategy, lowered micro-batch, FSDP unit.

    ``unit`` is None for an embedding whose parameters move with the head's. ``window_bytes``: the
    most bytes of waiting gradients beside its exchanges of rows; None: it has no window.
    """

    index: int
    layer: Layer
    strategy: LayerStrategy
    lowered: LoweredLayer
    unit: FsdpUnit | None
    window_bytes: int | None = None


@dataclass(frozen=True)
class StageChunk:
    """Layers of one virtual stage and activations crossing its ends (0: none).

    ``sources``: tower outputs that it reads from elsewhere, passes on, or makes.
    """

    layers: tuple[StageLayer, ...]
    input_bytes: int
    output_bytes: int
    sources: tuple[ChunkTowerOutput, ...] = ()

    @cached_property
    def layer_ids(self) -> tuple[tuple[int, ...], ...]:
        """A key, equal for equal layers while their lowering lives."""
        if any(entry.window_bytes is not None for entry in self.layers):
            windows = (-1 if e.window_bytes is None else e.window_bytes for e in self.layers)
            ids = ((id(e.lowered), id(e.unit)) for e in self.layers)
            return tuple((*pair, most) for pair, most in zip(ids, windows, strict=True))
        return tuple([(id(entry.lowered), id(entry.unit)) for entry in self.layers])

    @property
    def first_shared(self) -> int:
        """First layer with parameters in the head's unit, or -1."""
        return next((n for n, entry in enumerate(self.layers) if entry.unit is None), -1)

    @property
    def receives_bytes(self) -> int:
        """Bytes received in the forward; in the backward, their gradient is sent."""
        return self.input_bytes + sum(source.receives_bytes for source in self.sources)

    @property
    def sends_bytes(self) -> int:
        """Bytes sent in the forward; in the backward, their gradient is received."""
        return self.output_bytes + sum(source.sends_bytes for source in self.sources)

    def backward(self, number: int, first: bool, part: BackwardPart = "whole") -> LoweredPass:
        """Backward work of layer ``number`` in a first or later micro-batch.

        All of it, or one ``part`` where the schedule splits it. A later micro-batch adds to
        existing gradients, unless its unit reduces them away or keeps them in another number
        format. An embedding with its unit elsewhere adds nothing: a lower bound.
        """
        entry = self.layers[number]
        unit = entry.unit or self.layers[-1].unit
        fresh = unit is None or unit.starts_anew
        lowered = entry.lowered
        if part == "whole":
            return lowered.backward if first or fresh else lowered.accumulating_backward
        split = lowered.split_backward()
        if part == "input":
            return split.input if first or fresh else split.accumulating_input
        return split.weight if first or fresh else split.accumulating_weight

    def backward_passes(
        self, number: int, first: bool, last: bool, part: BackwardPart
    ) -> tuple[LoweredPass, ...]:
        """:meth:`backward`, then techniques' work on the layer's complete gradients."""
        backward, unit = self.backward(number, first, part), self.layers[number].unit
        if unit is None or not last or part == "input" or unit.added == NO_PASS:
            return (backward,)
        return (backward, unit.added)

    def lanes(self, number: int, kind: PassKind) -> LaneWorks:
        """Techniques' work beside a pass of layer ``number``."""
        entry = self.layers[number]
        unit, own = entry.unit, entry.lowered.lanes
        gathers = () if unit is None or kind.part == "weight" else unit.gather_lanes
        if kind.forward:
            return (*gathers, *own[0])
        lanes = () if kind.part == "weight" else (*gathers, *own[1])
        if unit is None or not kind.last or kind.part == "input":
            return lanes
        return (*lanes, *unit.gradient_lanes)
