"""gradient_windows: the price of sums of gradients inside exchanges of experts' rows.

Paper: FSMoE (ASPLOS 2025, arXiv:2501.10714), its section on gradient partitioning.

The idea: while a layer's experts work on chunks going back, the link between nodes is free for some
time after the last chunk has come and before the first leaves. Gradients of layers that are done
wait in line, and each such window takes a number of their bytes, in pieces. Where the layer behind
has no exchanges in chunks, all that waits is summed at its beginning, as without the technique.

Symbols: T(r, w) the time of a layer's r chunks with w seconds of other work on the outer stream
(see ``expert_pipelining``); B bytes of a window; S(B) seconds of the sums of B bytes.

Cost: of a window T(r, S(B)) - T(r, 0), which is 0 until the streams leave no more room. A piece of
a reduce-scatter is copied first. What no window took is exposed as sums at the end always were.

Takeaway: it gains where sums would otherwise take turns with exchanges, or follow the last layer.

Worked number: A = C = 4 ms whole, products 30 ms, 4 chunks: the link is busy for 8 ms of 32 ms, so
24 ms of sums cost nothing.

Limits: the search prices a layer's sums as free, and whole plans have them: its bounds are loose.
Sums that cross other link levels than the exchange take turns with it all the same, as in the run.
Gradients that each micro-batch sums, and states over some of their ranks, are refused.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.report.work_items import Collective
from ...spec.strategy import LayerStrategy
from ...spec.techniques import expert_pipelining
from ...spec.techniques.gradient_windows import NAME, GradientWindows
from ...spec.techniques.gradient_windows import TECHNIQUE as VALUE
from ..program_technique import ProgramPrice
from ..sharding.fsdp_unit import FsdpUnit, WaitingSums
from ..sharding.param_groups import UnitShape
from ..symbolic.tape import WorkItem
from ..technique import TechniquePrice


def waiting_unit(shape: UnitShape, unit: FsdpUnit, value: GradientWindows) -> FsdpUnit:
    """A unit whose sums wait for windows."""
    sums = tuple(item for item in unit.reduce.fresh if isinstance(item, Collective))
    if not unit.wrapped or not sums:
        return unit
    sums = sums[::-1]  # fully_shard ends a unit's last parameter group first
    fresh, accumulated = _kernels(unit.reduce.fresh), _kernels(unit.reduce.accumulated)
    reduce = unit.reduce._replace(fresh=fresh, accumulated=accumulated)
    return replace(unit, reduce=reduce, waiting=WaitingSums(NAME, sums))


def _kernels(items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
    return tuple(item for item in items if not isinstance(item, Collective))


def window_bytes(value: GradientWindows, layer: int, strategy: LayerStrategy) -> int | None:
    """The most bytes of a layer's window; None: it has none."""
    return None if expert_pipelining.value_of(strategy) is None else value.limit(layer)


TECHNIQUE = TechniquePrice(
    value=VALUE, program=ProgramPrice(unit=waiting_unit, window=window_bytes)
)
