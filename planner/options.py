"""Costs of every legal strategy of a layer, as arrays: for bounds, estimates and searches.

All figures are of one layer alone. ``bound`` figures never exceed what the layer adds to the
simulated step of any plan that uses the strategy; ``estimate`` figures are what it adds where
its neighbours look alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..costmodel.lowering import Lowering, StageChunk, StageLayer
from ..costmodel.memory import PassKind
from ..costmodel.overlap import slowed
from ..costmodel.pass_time import EXPOSED_DP, pass_time
from ..costmodel.prices import Pricer
from ..costmodel.sharding import Unit
from ..spec.strategy import LayerStrategy

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OptionTable:
    """One row a strategy of a layer kind, for a stage width and a micro-batch.

    ``middle_s``: forward and backward of any one micro-batch (bound).
    ``step_bound_s`` and ``step_estimate_s``: the whole step. ``resident_bytes``: live from the
    first forward on. ``kept_bytes``: added by every micro-batch in flight. ``extra_bytes``:
    gradients and buffers on top at the fullest moment (estimate). ``layouts``: number of the
    activation layout (tp and sequence parallelism).
    """

    strategies: tuple[LayerStrategy, ...]
    middle_s: Floats
    step_bound_s: Floats
    step_estimate_s: Floats
    resident_bytes: Floats
    kept_bytes: Floats
    extra_bytes: Floats
    layouts: NDArray[np.int64]

    def only(self, rows: NDArray[np.bool_]) -> OptionTable:
        """The table with these rows only."""
        strategies = tuple(s for s, keep in zip(self.strategies, rows, strict=True) if keep)
        return OptionTable(
            strategies,
            self.middle_s[rows],
            self.step_bound_s[rows],
            self.step_estimate_s[rows],
            self.resident_bytes[rows],
            self.kept_bytes[rows],
            self.extra_bytes[rows],
            self.layouts[rows],
        )

    def bytes_at(self, in_flight: float) -> Floats:
        """Estimated bytes with this many micro-batches in flight."""
        return self.resident_bytes + in_flight * self.kept_bytes + self.extra_bytes


def layout_number(strategy: LayerStrategy) -> int:
    """A number for (tp, sequence parallelism): layers with equal ones need no move between."""
    return strategy.tp * 2 + int(strategy.megatron_sp)


class OptionTables:
    """Builds the tables of a search and keeps them.

    Args:
        lowering: of the model, workload and stack.
        pricer: of the machine.
    """

    def __init__(self, lowering: Lowering, pricer: Pricer) -> None:
        self.lowering = lowering
        self.pricer = pricer
        self._tables: dict[tuple[object, ...], OptionTable] = {}

    def table(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        ranks: int,
        samples: int,
        microbatches: int,
        members: tuple[int, ...] | None = None,
        reach: int = 1,
    ) -> OptionTable:
        """The table of ``layer`` under ``strategies``.

        Args:
            layer: layer number (layers of one kind share a table).
            strategies: its legal strategies; the same tuple object for equal questions.
            ranks: ranks of the stage.
            samples: samples of a micro-batch over the stage.
            microbatches: micro-batches of a step.
            members: the layers whose parameters move with this one's (itself alone if None,
                none where they move with another layer's).
            reach: how many link levels the stage's groups cross.
        """
        members = (layer,) if members is None else members
        kinds = tuple(self.lowering.kinds[i] for i in members)
        place = (ranks, samples, microbatches, reach)
        key = (self.lowering.kinds[layer], id(strategies), *place, kinds)
        if key not in self._tables:
            rows = [self._row(layer, s, *place, members) for s in strategies]
            columns = np.array(rows, dtype=np.float64).reshape(len(rows), 6)
            self._tables[key] = OptionTable(
                strategies=strategies,
                middle_s=columns[:, 0],
                step_bound_s=columns[:, 1],
                step_estimate_s=columns[:, 2],
                resident_bytes=columns[:, 3],
                kept_bytes=columns[:, 4],
                extra_bytes=columns[:, 5],
                layouts=np.array([layout_number(s) for s in strategies], dtype=np.int64),
            )
        return self._tables[key]

    def _row(
        self,
        layer: int,
        strategy: LayerStrategy,
        ranks: int,
        samples: int,
        microbatches: int,
        reach: int,
        members: tuple[int, ...],
    ) -> tuple[float, ...]:
        shares = not members
        lowered = self.lowering.layer(layer, strategy, None, ranks, samples, shares)
        unit = self.lowering.unit(members, strategy, ranks) if members else None
        entry = StageLayer(layer, self.lowering.layers[layer], strategy, lowered, unit)
        chunk = StageChunk((entry,), 0, 0)
        kept = lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes
        return (
            *self._step(chunk, microbatches, self.pricer.reaching(reach)),
            self._resident_bytes(unit),
            kept,
            _extra_bytes(unit, microbatches),
        )

    def _resident_bytes(self, unit: Unit | None) -> float:
        if unit is None:
            return 0.0
        whole = 0 if unit.gathers_each_use else unit.whole_bytes
        contiguous = self.lowering.stack.state_layout == "contiguous"
        gradients = unit.accumulated_bytes if contiguous else 0
        return float(unit.parameter_bytes + unit.optimizer_bytes + whole + gradients)

    def _step(
        self, chunk: StageChunk, microbatches: int, pricer: Pricer
    ) -> tuple[float, float, float]:
        """What the layer adds: bound on any one micro-batch, bound and estimate of the step."""
        least_s = bound_s = estimate_s = 0.0
        for forward in (True, False):
            lows = []
            for first, last, count in _pass_counts(microbatches):
                low, likely = _times(chunk, PassKind(forward, 0, first, last), pricer)
                bound_s += count * low
                estimate_s += count * likely
                lows.append(low)
            least_s += min(lows)
        return least_s, bound_s, estimate_s


def _times(chunk: StageChunk, kind: PassKind, pricer: Pricer) -> tuple[float, float]:
    """Bound and estimate of one pass.

    In line both are exact. With overlap the traffic may hide behind neighbours, so only the
    computation is certain; between like neighbours the longer of both shows, stretched.
    """
    time = pass_time(chunk, kind, pricer)
    if pricer.overlap == "none":
        return time.time_s, time.time_s
    work_s = time.time_s - time.terms_s[EXPOSED_DP]
    wire_s = time.terms_s[EXPOSED_DP]
    return work_s, max(slowed(work_s, wire_s, pricer.stack.overlap_slowdown), wire_s)


def _pass_counts(microbatches: int) -> list[tuple[bool, bool, int]]:
    """Kinds of micro-batches (first, last) and how many there are of each."""
    if microbatches == 1:
        return [(True, True, 1)]
    middle = [(False, False, microbatches - 2)] if microbatches > 2 else []
    return [(True, False, 1), *middle, (False, True, 1)]


def _extra_bytes(unit: Unit | None, microbatches: int) -> float:
    """Gradients at the fullest moment: whole ones where they wait, shards where they do not."""
    if unit is None:
        return 0.0
    if not unit.wrapped:
        return float(unit.gradient_bytes)
    if unit.reduces_each_micro_batch:
        return float(unit.shard_gradient_bytes)
    return float(unit.accumulated_bytes if microbatches > 1 else unit.shard_gradient_bytes)
