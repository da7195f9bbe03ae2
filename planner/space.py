"""The search space: which pipeline shapes and which layer strategies are legal here.

Every legal degree is in the space, not only powers of two: stages of any width that the
layers can split, fewer devices than there are, every divisor of the batch as the number of
micro-batches. What is left out is listed with the rule that leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..costmodel.simulate import MAX_PASSES
from ..spec.cluster import ClusterSpec
from ..spec.layer_legality import RECOMPUTED
from ..spec.legality import executable_reason, layer_reason, schedule_reason, stack_reason
from ..spec.model import BlockLayer, Layer, ModelSpec
from ..spec.schedule import SCHEDULE_KINDS
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy, Recompute, SequenceParallel, Sharding
from ..spec.tensor_split import split_sizes
from ..spec.towers import layer_places
from ..spec.workload import Workload
from .pins import LAYER_KEYS, Pin, layer_allows, pinned_shardings, value_allows
from .shape import Shape as Shape
from .shard_levels import group_sizes
from .space_report import describe, left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the planner.

    ``executable`` keeps to what the bundled executor runs. ``values`` narrows axes to lists of
    values (tests and frameworks); None leaves an axis whole.
    """

    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stack: StackSpec
    pins: tuple[Pin, ...] = ()
    executable: bool = False
    values: dict[str, tuple[Any, ...]] | None = None


def divisors(number: int) -> list[int]:
    """Every divisor, ascending."""
    small, large, d = [], [], 1
    while d * d <= number:
        if number % d == 0:
            small.append(d)
            if d * d != number:
                large.append(number // d)
        d += 1
    return small + large[::-1]


class SearchSpace:
    """Enumerates the space of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.layers = request.model.layers()
        self._trainings = request.workload.layer_trainings(request.model)
        self.places = layer_places(request.model, request.workload.seq_len)
        numbers: dict[tuple[object, ...], int] = {}
        self.kinds = tuple(
            numbers.setdefault(self._kind_key(i, layer), len(numbers))
            for i, layer in enumerate(self.layers)
        )
        self.first_of_kind = {kind: self.kinds.index(kind) for kind in set(self.kinds)}
        self.too_long = False
        self._levels = group_sizes(request.cluster)
        self._options: dict[tuple[int, int, int], tuple[LayerStrategy, ...]] = {}
        self._splits_of: dict[tuple[int, int, int], tuple[LayerStrategy, ...]] = {}

    def _kind_key(self, index: int, layer: Layer) -> tuple[object, ...]:
        """Layers are alike if they compute alike and the same pins speak of them."""
        own = tuple(n for n, pin in enumerate(self.request.pins) if pin.covers(index))
        return (layer, own, self._trainings[index], self.places[index])

    def _allowed(self, axis: str, value: Any) -> bool:
        values = self.request.values
        if values is not None and axis in values and value not in values[axis]:
            return False
        return all(p.value == value for p in self.request.pins if p.key == axis)

    @cached_property
    def device_count(self) -> int:
        """Devices that the plan may use."""
        return self.request.cluster.device_count

    def widths(self) -> list[int]:
        """Stage widths that some block can use: tensor-parallel times data-parallel degrees."""
        batches = divisors(self.request.workload.global_batch)
        found = {
            tp * dp
            for tp in self._block_degrees
            for dp in batches
            if tp * dp <= self.device_count and self._allowed("dp", dp)
        }
        return sorted(found)

    @cached_property
    def _block_degrees(self) -> list[int]:
        """Tensor-parallel degrees that every block can be split by."""
        sizes = {size for layer in set(self.layers) for size in split_sizes(layer).values()}
        shared = math.gcd(*sizes) if sizes else 1
        return divisors(shared)

    def shapes(self) -> Iterator[Shape]:
        """Every legal pipeline shape, fewest stages first."""
        for ranks in self.widths():
            usable = self._usable_counts(ranks)
            most = min(len(self.layers), self.device_count // ranks)
            for stages in range(1, most + 1):
                if self._allowed("pp", stages) and usable:
                    yield from self._schedules(stages, ranks, usable)

    def plausible(self) -> Iterator[Shape]:
        """Some shapes that leave the fewest devices idle: where a hasty search looks first.

        Of every width those with about 4, 16 and 64 micro-batches a stage, and with most, which
        are the smallest.
        """
        workload, full = self.request.workload, dict[int, tuple[int, int]]()
        for ranks in self.widths():
            stages = min(len(self.layers), self.device_count // ranks)
            while stages and not self._allowed("pp", stages):
                stages -= 1
            full[ranks] = (stages * ranks, stages)
        most = max((used for used, _ in full.values()), default=0)
        for ranks, (used, stages) in full.items():
            usable = self._usable_counts(ranks) if used == most and stages else []
            shapes = list(self._schedules(stages, ranks, usable)) if usable else []
            plain = [s for s in shapes if s.kind == "1f1b"] or shapes
            near = (
                min(plain, key=lambda s: (abs(s.microbatches - each * s.stages), s))
                for each in (4, 16, 64, workload.global_batch)
                if plain
            )
            yield from dict.fromkeys(near)

    def _usable_counts(self, ranks: int) -> list[int]:
        """Numbers of micro-batches with which every layer has a legal strategy."""
        batch = self.request.workload.global_batch
        return [m for m in divisors(batch) if self._usable(ranks, batch // m)]

    def _schedules(self, stages: int, ranks: int, counts: list[int]) -> Iterator[Shape]:
        for kind in SCHEDULE_KINDS:
            if not self._allowed("schedule", kind) or kind not in self.request.stack.schedules:
                continue
            most = len(self.layers) // stages if kind == "interleaved" else 1
            if stages == 1 and kind != "1f1b" and self._allowed("schedule", "1f1b"):
                continue  # with one stage every schedule is the same sequence of work or worse
            for chunks in range(2 if kind == "interleaved" else 1, most + 1):
                if not self._allowed("vpp", chunks):
                    continue
                for count in counts:
                    if schedule_reason(kind, stages, chunks, count, len(self.layers)) is not None:
                        continue
                    shape = Shape(stages, ranks, kind, chunks, count)
                    if shape.passes <= MAX_PASSES:
                        yield shape
                    else:
                        self.too_long = True

    def _usable(self, ranks: int, samples: int) -> bool:
        return all(self.options(kind, ranks, samples) for kind in self.first_of_kind)

    def options(self, kind: int, ranks: int, samples: int) -> tuple[LayerStrategy, ...]:
        """Legal strategies of a layer kind for a stage's ranks and samples of a micro-batch."""
        key = (kind, ranks, samples)
        if key not in self._options:
            self._options[key] = tuple(self._make_options(kind, ranks, samples))
        return self._options[key]

    def _make_options(self, kind: int, ranks: int, samples: int) -> Iterator[LayerStrategy]:
        index = self.first_of_kind[kind]
        for tp in divisors(ranks):
            dp = ranks // tp
            if samples % dp == 0 and self._batch_allowed(index, samples, dp):
                yield from self._split_options(kind, tp, dp)

    def _split_options(self, kind: int, tp: int, dp: int) -> tuple[LayerStrategy, ...]:
        """Legal strategies of tp x dp ranks: the same for every micro-batch that dp divides."""
        key = (kind, tp, dp)
        if key not in self._splits_of:
            index = self.first_of_kind[kind]
            layer = self.layers[index]
            pinned = pinned_shardings(self.request.pins, index, self._levels, tp, dp)
            shards = tuple(dict.fromkeys((*shardings(dp), *pinned)))
            self._splits_of[key] = tuple(
                strategy
                for strategy in self._splits(layer, tp, shards)
                if self._legal(index, layer, strategy, tp * dp)
            )
        return self._splits_of[key]

    def _batch_allowed(self, index: int, samples: int, dp: int) -> bool:
        """Pins of micro_batch and dp speak of the first layer and of every block."""
        if index == 0 and not self._allowed("micro_batch", samples // dp):
            return False
        speaks = index == 0 or isinstance(self.layers[index], BlockLayer)
        return not speaks or self._allowed("dp", dp)

    @staticmethod
    def _splits(layer: Layer, tp: int, shards: tuple[Sharding, ...]) -> Iterator[LayerStrategy]:
        recomputes: tuple[Recompute, ...] = ("none",)
        if isinstance(layer, RECOMPUTED):
            recomputes = ("none", "selective", "full")
        sequences: tuple[SequenceParallel, ...] = ("none", "megatron") if tp > 1 else ("none",)
        for sp in sequences:
            for shard in shards:
                for recompute in recomputes:
                    yield LayerStrategy(
                        tp=tp,
                        sequence_parallel=sp,
                        shard=shard,
                        recompute=recompute,
                    )

    def _legal(self, index: int, layer: Layer, strategy: LayerStrategy, ranks: int) -> bool:
        request, dp = self.request, strategy.data_parallel(ranks)
        is_block = isinstance(layer, BlockLayer)
        for key, values in (request.values or {}).items():
            if key in LAYER_KEYS and not any(
                value_allows(key, value, is_block, strategy, dp, self._levels) for value in values
            ):
                return False
        if not layer_allows(request.pins, index, is_block, strategy, dp, self._levels):
            return False
        reasons = (
            layer_reason(layer, strategy, ranks, dp, self.places[index].tokens),
            stack_reason(strategy, request.stack),
            executable_reason(strategy, request.workload) if request.executable else None,
        )
        return not any(reasons)

    def describe(self, shapes: list[Shape]) -> dict[str, list[Any]]:
        """Axis to the values that occur in the space, keyed as simulate's flags."""
        return describe(self, shapes)

    def left_out(self) -> list[dict[str, str]]:
        """What no plan of the space has, and the rule or reason."""
        return left_out(self.request, self.too_long)


def shardings(data_parallel: int) -> list[Sharding]:
    """The levels over ``data_parallel`` ranks: zero0 to zero3 and every hsdp degree between."""
    if data_parallel == 1:
        return [Sharding()]
    levels = ["zero0", "zero1", "zero2", "zero3"]
    levels += [f"hsdp:{d}" for d in divisors(data_parallel)[1:-1]]
    return [Sharding.from_text(level, data_parallel) for level in levels]
