"""gradient_windows: sums of gradients inside the exchanges of experts' rows behind them.

Exact: the same sums, in pieces. Planned where a pin asks for it, simulated and run, beside
``expert_pipelining`` alone. The card is in ``costmodel.techniques.gradient_windows``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..program_rules import ProgramRules
from ..schedules.stage_order import SPLIT_KINDS
from ..technique import TechniqueValue
from . import expert_pipelining

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..model.model_spec import ModelSpec
    from ..schedules.stage_order import ScheduleKind
    from ..strategy import LayerStrategy
    from ..workload.workload import Workload

NAME = "gradient_windows"
FILL = "fill"
ALL_BYTES = 2**62
"""Limit of a window that takes all that waits."""
UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_SIZE = rf"(fill|(?:0|[1-9][0-9]{{0,14}})(?:{'|'.join(UNITS)}))"
_LAYERS = re.compile(rf"(0|[1-9][0-9]{{0,5}})(?:-([1-9][0-9]{{0,5}}))?:{_SIZE}")
_REST = re.compile(_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWindows:
    """Bytes that the windows of layers ``first`` to ``last`` take at most; None: all that wait."""

    first: int
    last: int
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientWindows:
    """Bytes of waiting gradients that the window of each layer takes.

    ``most_bytes``: of layers that ``layers``, in order and apart, do not name; None: all that wait.
    """

    most_bytes: int | None = None
    layers: tuple[LayerWindows, ...] = ()

    def limit(self, layer: int) -> int:
        """The most bytes that a layer's window takes."""
        own = (one.most_bytes for one in self.layers if one.first <= layer <= one.last)
        most_bytes = next(own, self.most_bytes)
        return ALL_BYTES if most_bytes is None else most_bytes


def violation(value: GradientWindows, model: ModelSpec, workload: Workload) -> str | None:
    """The rule that a model or workload breaks."""
    from ..model.experts import experts_of

    dtype, before = workload.dtype, -1
    if all(experts_of(layer) is None for layer in model.layers()):
        return f"{NAME} needs experts, which {model.name} lacks"
    if dtype.communication != dtype.master:
        given = f"sums in {dtype.communication} for {dtype.master} gradients"
        return f"{NAME} of {given} is not built yet"
    sizes = (value.most_bytes, *(one.most_bytes for one in value.layers))
    if any(size is not None and not 0 <= size <= ALL_BYTES for size in sizes):
        return f"{NAME} takes 0 bytes or more in a window"
    for one in value.layers:
        if not before < one.first <= one.last:
            return f"{NAME} names layers in order, each once; {one.first}-{one.last} is not"
        before = one.last
    return None


def layer_violation(
    value: GradientWindows, layer: Layer, strategy: LayerStrategy, stage_ranks: int
) -> str | None:
    """The rule that a layer's strategy breaks."""
    from ..model.experts import experts_of

    has_experts = layer.kind == "block" and experts_of(layer) is not None
    if has_experts and expert_pipelining.value_of(strategy) is None:
        return f"{NAME} needs {expert_pipelining.NAME} in every block with experts"
    shard = strategy.shard
    if shard.reduces_each_micro_batch or shard.gathers_each_use:
        return f"{NAME} of gradients that each micro-batch sums (zero2, zero3) is not built yet"
    if 1 < shard.optimizer < strategy.state_ranks(stage_ranks):
        return f"{NAME} of states over some of their ranks is not built yet: zero0 or zero1"
    if "quantized_communication" in strategy.techniques or "cpu_offload" in strategy.techniques:
        return f"{NAME} beside cpu_offload or quantized_communication is not built yet"
    return None


def pipeline_violation(
    value: GradientWindows, kind: ScheduleKind, stages: int, chunks: int, micro_batches: int
) -> str | None:
    """The rule that a pipeline breaks."""
    if kind in SPLIT_KINDS:
        return f"{NAME} in backwards that {kind} splits is not built yet"
    return f"{NAME} in {chunks} chunks a stage is not built yet" if chunks > 1 else None


def stack_violation(value: GradientWindows, stack: StackSpec) -> str | None:
    """The rule that a stack breaks."""
    if stack.state_layout == "contiguous" or stack.reductions == "after_passes":
        return f"the stack {stack.name} does not sum gradients layer by layer in a backward"
    return None


def word_of(value: GradientWindows) -> str:
    """The word of a value: bytes of all windows, then those of some layers."""
    words = [_size_text(value.most_bytes)]
    for one in value.layers:
        last = "" if one.first == one.last else f"-{one.last}"
        words.append(f"{one.first}{last}:{_size_text(one.most_bytes)}")
    return "/".join(words)


def _size_text(size: int | None) -> str:
    if size is None:
        return FILL
    if size == 0:
        return "0B"
    unit = next(unit for unit, scale in UNITS.items() if size % scale == 0)
    return f"{size // UNITS[unit]}{unit}"


def _size(word: str) -> int | None:
    if word == FILL:
        return None
    unit = next(unit for unit in UNITS if word.endswith(unit))
    return int(word.removesuffix(unit)) * UNITS[unit]


def from_word(word: str) -> GradientWindows | None:
    """The value of a word; None: it is none."""
    rest, *layers = word.split("/")
    typed = [_LAYERS.fullmatch(one) for one in layers]
    if not _REST.fullmatch(rest) or not all(typed):
        return None
    windows = tuple(
        LayerWindows(first=int(m[1]), last=int(m[2] or m[1]), most_bytes=_size(m[3]))
        for m in typed
        if m is not None
    )
    return GradientWindows(most_bytes=_size(rest), layers=windows)


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=GradientWindows,
    program=ProgramRules(
        violation=violation,
        layer_violation=layer_violation,
        pipeline_violation=pipeline_violation,
        stack_violation=stack_violation,
    ),
    words=(FILL, "64KiB", "1MiB/1:0B"),
    word_of=word_of,
    from_word=from_word,
    help="Bytes of gradients that wait for the exchanges of the experts behind them: none, fill "
    "(all), 64MiB a layer, or 64MiB/4-9:0B with other layers apart; only beside "
    "--expert-pipelining.",
    metavar="BYTES",
    systems=("FSMoE",),
)
