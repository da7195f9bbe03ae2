"""Search space: legal pipeline shapes and layer strategies.

Every legal degree is in it, not only powers of two: any stage width that layers can split, fewer
devices than available, every divisor of the batch as micro-batches. Plans left out are listed with
their rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...costmodel.simulation.simulator import Simulator
from ...spec.cluster.stack_spec import StackLimits
from ...spec.limits import MAX_PASSES
from ...spec.model.model_spec import BlockLayer, Layer
from ...spec.model.towers import layer_contexts
from ...spec.numbers import divisors
from ...spec.program_values import program_pipeline_violation
from ...spec.rules.executable import unsupported_layer_together, unsupported_strategy
from ...spec.rules.plan_rules import (
    schedule_stack_violation,
    schedule_violation,
    stack_violation,
    unsupported_run,
)
from ...spec.rules.stack_limits import limits_violation
from ...spec.schedules.stage_order import ALL_KINDS, SPLIT_KINDS, ScheduleKind
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.workload.expert_load import layer_buckets
from .coverage import MAX_UNEVEN_LAYERS, describe, left_out
from .joined_strategies import JoinedStrategies
from .layer_splits import Splits
from .pins import CORE_KEYS, UNSHARDED, layer_allows, pinned_shardings, value_allows
from .pipeline_shape import PipelineShape as PipelineShape
from .request import Request as Request
from .shard_levels import group_sizes, inner_degrees, shardings
from .technique_options import HeldValues, TechniqueOptions
from .usual_options import UsualOptions

SPLIT_KEYS = tuple(key for key in CORE_KEYS if key not in ("shard", "recompute"))


class SearchSpace:
    """Search space of a request.

    ``simulator``: of the search, for values of techniques; None: one at catalogue rates.
    """

    def __init__(self, request: Request, simulator: Simulator | None = None) -> None:
        self.request = request
        self.layers = request.model.layers()
        self._trainings = request.workload.layer_trainings(request.model)
        self.contexts = layer_contexts(request.model, request.workload.seq_len)
        self._loads = layer_buckets(request.model, request.workload.expert_load)
        numbers: dict[tuple[object, ...], int] = {}
        keys = (self._class_key(i, layer) for i, layer in enumerate(self.layers))
        self.layer_classes = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
        self.first_of_class = {
            layer_class: self.layer_classes.index(layer_class)
            for layer_class in set(self.layer_classes)
        }
        self.too_long = False
        self._is_limited = request.stack.limits != StackLimits()
        self._levels = group_sizes(request.cluster)
        self.techniques = TechniqueOptions(request, simulator)
        self._work_keys = ("recompute", *request.techniques.names)
        self._splits = Splits(request, tuple(context.tokens for context in self.contexts))
        self._options: dict[tuple[int, int, int], tuple[LayerStrategy, ...]] = {}
        self._usual = UsualOptions(request.cluster)
        self._sharded: dict[tuple[int, int, int, int], tuple[LayerStrategy, ...]] = {}
        self._joined: dict[tuple[int, ...], tuple[LayerStrategy, ...]] = {}
        self._of_splits: dict[tuple[object, ...], tuple[LayerStrategy, ...]] = {}
        self._sets: dict[int, frozenset[LayerStrategy]] = {}

    def _class_key(self, index: int, layer: Layer) -> tuple[object, ...]:
        pins = tuple(n for n, pin in enumerate(self.request.pins) if pin.covers(index))
        return (layer, pins, self._trainings[index], self.contexts[index], self._loads[index])

    def allows(self, axis: str, value: Any) -> bool:
        """True if pins and lists of values allow an axis value."""
        values = self.request.values
        if values is not None and axis in values and value not in values[axis]:
            return False
        return all(p.value == value for p in self.request.pins if p.key == axis)

    @property
    def is_large(self) -> bool:
        """True for models of many layers, with even virtual stages only."""
        return len(self.layers) > MAX_UNEVEN_LAYERS

    @cached_property
    def device_count(self) -> int:
        """Devices available to the plan."""
        return self.request.cluster.device_count

    def widths(self) -> list[int]:
        """Stage widths usable by every layer."""
        return self._splits.widths(self.device_count)

    def shapes(self) -> Iterator[PipelineShape]:
        """Every legal pipeline shape, fewest stages first."""
        for ranks in self.widths():
            usable = self._microbatch_counts(ranks)
            most = min(len(self.layers), self.device_count // ranks)
            for stages in range(1, most + 1):
                has_stages = stages == 1 or "pp" in self.request.stack.limits.axes
                if has_stages and self.allows("pp", stages) and usable:
                    yield from self.schedules(stages, ranks, usable)

    def plausible(self) -> Iterator[PipelineShape]:
        """Some shapes with the fewest idle devices, for a first search.

        Of every width those with about 4, 16 and 64 micro-batches a stage, and with the most
        (smallest) micro-batches.
        """
        workload, full = self.request.workload, dict[int, tuple[int, int]]()
        for ranks in self.widths():
            stages = min(len(self.layers), self.device_count // ranks)
            if "pp" not in self.request.stack.limits.axes:
                stages = min(stages, 1)
            while stages and not self.allows("pp", stages):
                stages -= 1
            full[ranks] = (stages * ranks, stages)
        most = max((used for used, _ in full.values()), default=0)
        for ranks, (used, stages) in full.items():
            usable = self._microbatch_counts(ranks) if used == most and stages else []
            shapes = list(self.schedules(stages, ranks, usable)) if usable else []
            plain = [s for s in shapes if s.kind == "1f1b"] or shapes
            near = (
                min(plain, key=lambda s: (abs(s.microbatches - target * s.stages), s))
                for target in (4, 16, 64, workload.global_batch)
                if plain
            )
            yield from dict.fromkeys(near)

    def _microbatch_counts(self, ranks: int) -> list[int]:
        batch = self.request.workload.global_batch
        return [m for m in divisors(batch) if self._usable(ranks, batch // m)]

    def schedules(self, stages: int, ranks: int, counts: list[int]) -> Iterator[PipelineShape]:
        """Shapes of these stages, ranks and numbers of micro-batches."""
        for kind in self.schedule_kinds:
            if stages == 1 and kind != "1f1b" and "1f1b" in self.schedule_kinds:
                continue  # with one stage all take the same time; see gpipe_variant
            for chunks in self._chunks(kind, stages):
                for count in counts:
                    if self.request.single_fill and count > stages:
                        continue
                    if self._pipeline_violation(kind, stages, chunks, count) is not None:
                        continue
                    shape = PipelineShape(stages, ranks, kind, chunks, count)
                    if shape.passes <= MAX_PASSES:
                        yield shape
                    else:
                        self.too_long = True

    def _pipeline_violation(
        self, kind: ScheduleKind, stages: int, chunks: int, count: int
    ) -> str | None:
        request, shape = self.request, (kind, stages, chunks, count)
        reason = schedule_violation(*shape, len(self.layers))
        if reason is None and request.program:
            values = request.techniques.values
            reason = program_pipeline_violation(request.program, *shape, values)
        return reason

    def gpipe_variant(self, shape: PipelineShape) -> PipelineShape | None:
        """GPipe in place of one-stage 1F1B: same time, maybe less memory.

        It holds the activations of all micro-batches, but no gradients during their forwards.
        """
        orders = shape.stages == 1 and shape.microbatches > 1 and shape.kind == "1f1b"
        if not orders or "gpipe" not in self.schedule_kinds:
            return None
        legal = self._pipeline_violation("gpipe", 1, shape.chunks, shape.microbatches) is None
        return shape._replace(kind="gpipe") if legal else None

    @cached_property
    def schedule_kinds(self) -> tuple[ScheduleKind, ...]:
        """Allowed schedules of the stack, and of the executor if required."""
        request = self.request
        joined = self.techniques.may_join_backward()
        return tuple(
            kind
            for kind in ALL_KINDS
            if self.allows("schedule", kind)
            and schedule_stack_violation(kind, request.stack) is None
            and not (request.executable and kind in SPLIT_KINDS and joined)
        )

    def _chunks(self, kind: ScheduleKind, stages: int) -> list[int]:
        most = len(self.layers) // stages if kind == "interleaved" else 2
        return [n for n in range(1, most + 1) if self.allows("vpp", n)]

    def _usable(self, ranks: int, samples: int) -> bool:
        return all(self.options(k, ranks, samples) for k in self.first_of_class)

    def options(self, layer_class: int, ranks: int, samples: int) -> tuple[LayerStrategy, ...]:
        """Legal strategies of a layer class, by ranks and micro-batch samples."""
        key = (layer_class, ranks, samples)
        if key not in self._options:
            self._options[key] = JoinedStrategies.of(
                self.sharded(layer_class, ranks, dp, samples // dp)
                for dp in self.batch_parts(layer_class, ranks, samples)
            )
        return self._options[key]

    def usual(self, layer_class: int, ranks: int, samples: int) -> tuple[LayerStrategy, ...]:
        """Options for heuristics of large shapes: common ones, or all.

        All if few, or if none is common. By common practice weights are split inside the innermost
        link level, and states sharded over all ranks that hold them or those of a link level.
        Where those are still many, each technique is off or has its last value. Bounds cover all
        options, and small shapes are enumerated with all.
        """
        return self._usual.of(self.options(layer_class, ranks, samples), ranks)

    def batch_parts(self, layer_class: int, ranks: int, samples: int) -> list[int]:
        """Data-parallel degrees of a layer class, descending."""
        index = self.first_of_class[layer_class]
        return [
            dp
            for dp in reversed(divisors(ranks))
            if samples % dp == 0 and self._batch_allowed(index, samples, dp)
        ]

    def sharded(
        self, layer_class: int, ranks: int, dp: int, samples: int
    ) -> tuple[LayerStrategy, ...]:
        """Legal strategies of dp replicas, each with so many samples of a micro-batch.

        Without techniques they are the same for any number of samples.
        """
        samples = samples if self.techniques.depend_on_samples else 1
        key = (layer_class, ranks, dp, samples)
        if key not in self._sharded:
            index = self.first_of_class[layer_class]
            parts = tuple(
                self._of_split(index, split, ranks, samples)
                for split in self._splits.of(index, ranks, dp)
                if self._is_allowed(index, split, ranks, SPLIT_KEYS)
            )
            same = (layer_class, ranks, dp, *map(id, parts))
            if same not in self._joined:  # equal ones are one object: caches ask for it by its id
                self._joined[same] = JoinedStrategies.of(parts)
            self._sharded[key] = self._joined[same]
        return self._sharded[key]

    def is_option(
        self, layer_class: int, ranks: int, samples: int, strategy: LayerStrategy
    ) -> bool:
        """True if a strategy is one of :meth:`options`."""
        dp = strategy.data_parallel(ranks)
        if dp < 1 or dp not in self.batch_parts(layer_class, ranks, samples):
            return False
        options = self.sharded(layer_class, ranks, dp, samples // dp)
        if id(options) not in self._sets:
            self._sets[id(options)] = frozenset(options)
        return strategy in self._sets[id(options)]

    def _of_split(
        self, index: int, split: LayerStrategy, ranks: int, samples: int
    ) -> tuple[LayerStrategy, ...]:
        """Strategies of a split; the same object where the same values are held."""
        recomputes = [
            replace(split, recompute=word) for word in self._splits.recomputes(index, split, ranks)
        ]
        held = tuple(self.techniques.held(index, one, ranks, samples) for one in recomputes)
        key = (index, split, ranks, held)
        if key not in self._of_splits:
            values = list(zip(recomputes, held, strict=True))
            self._of_splits[key] = tuple(self._strategies(index, split, ranks, values))
        return self._of_splits[key]

    def _strategies(
        self,
        index: int,
        split: LayerStrategy,
        ranks: int,
        recomputes: list[tuple[LayerStrategy, HeldValues]],
    ) -> Iterator[LayerStrategy]:
        """A split with every legal and allowed sharding, recomputation and technique."""
        request, layer, techniques = self.request, self.layers[index], self.techniques
        values = request.techniques.values
        unsharded = [
            (strategy, held.adding.intersection(strategy.techniques.items()))
            for recomputed, held in recomputes
            for strategy in held.combined(recomputed)
            if self._is_allowed(index, strategy, ranks, self._work_keys)
        ]
        for shard in self._shardings(index, split, ranks):
            only_adds = techniques.only_adds_to_states(index, replace(split, shard=shard), ranks)
            for strategy, adding in unsharded:
                strategy = replace(strategy, shard=shard)
                if techniques.violation(layer, strategy, ranks) is not None:
                    continue
                if self._is_limited and limits_violation(strategy, ranks, 1, request.stack):
                    continue
                if stack_violation(strategy, request.stack, values) is not None:
                    continue
                if adding and any(map(only_adds, adding)):
                    continue  # without one of its techniques a layer is as good in every plan
                if not (request.executable and self._unsupported(layer, strategy)):
                    yield strategy

    def _unsupported(self, layer: Layer, strategy: LayerStrategy) -> str | None:
        model, workload = self.request.model, self.request.workload
        return (
            unsupported_run(strategy, workload)
            or unsupported_layer_together(layer, workload)
            or unsupported_strategy(model, strategy, workload)
        )

    def _shardings(self, index: int, split: LayerStrategy, ranks: int) -> list[Sharding]:
        """Legal and allowed shardings of a split: levels and pinned ones."""
        n = split.state_ranks(ranks)
        if n == 1 and not self._allows_unsharded(index):
            return []  # nothing to shard: a level would be met emptily
        pins, nests = self.request.pins, self.request.nested_degrees
        inner = inner_degrees(self._levels, split.weight_split, n) if nests else ()
        levels = shardings(n, inner)
        pinned = pinned_shardings(pins, index, self._levels, split.weight_split, n)
        legal = [
            shard
            for shard in pinned
            if self._splits.legal(index, replace(split, shard=shard), ranks)
        ]
        return [
            shard
            for shard in dict.fromkeys((*levels, *legal))
            if self._is_allowed(index, replace(split, shard=shard), ranks, ("shard",))
        ]

    def _allows_unsharded(self, index: int) -> bool:
        """True if no pin asks to shard a layer, or one may be met emptily."""
        if not self.request.shards_pinned:
            return True
        pinned = (p.value for p in self.request.pins if p.key == "shard" and p.covers(index))
        return all(value in UNSHARDED for value in pinned)

    def splits_of_a_sample(self, index: int) -> list[LayerStrategy]:
        """Legal splits of a layer over ranks sharing one sample."""
        degrees = self._splits.degrees(index, self.device_count)
        return [split for width in degrees for split in self._splits.of(index, width, 1)]

    def most_samples(self, index: int) -> int:
        """Maximum samples of a micro-batch of a replica in a layer."""
        batch = self.request.workload.global_batch
        return max(n for n in range(1, batch + 1) if self._splits.small_enough(index, n))

    def may_take(self, layer_class: int, samples: int, dp: int, most: int) -> bool:
        """True if a layer class may have replicas of unequal samples.

        Args:
            layer_class: of the layer.
            samples: of a micro-batch over all replicas.
            dp: replicas, possibly of unequal parts.
            most: samples of the largest part.
        """
        index = self.first_of_class[layer_class]
        return self._splits.small_enough(index, most) and self._batch_allowed(index, samples, dp)

    def _batch_allowed(self, index: int, samples: int, dp: int) -> bool:
        if not self._splits.small_enough(index, samples // dp):
            return False
        if index == 0 and not self.allows("micro_batch", samples // dp):
            return False
        has_dp = index == 0 or isinstance(self.layers[index], BlockLayer)
        return not has_dp or self.allows("dp", dp)

    def _is_allowed(
        self, index: int, strategy: LayerStrategy, ranks: int, keys: tuple[str, ...]
    ) -> bool:
        request, layer = self.request, self.layers[index]
        context = (layer, strategy, ranks, self._levels, request.techniques)
        for key, values in (request.values or {}).items():
            if key in keys and not any(value_allows(key, value, *context) for value in values):
                return False
        pins = tuple(pin for pin in request.pins if pin.key in keys)
        return layer_allows(pins, index, *context)

    def describe(self, shapes: list[PipelineShape]) -> dict[str, list[Any]]:
        """Axes with their values in the space, keyed as simulate's flags."""
        return describe(self, shapes)

    def left_out(self, has_solver: bool) -> list[dict[str, str]]:
        """Plans left out of the space, each with its rule or reason.

        Args:
            has_solver: True if the linear relaxation can be solved.
        """
        rows = left_out(self.request, self.too_long, has_solver)
        if self.request.executable and self.techniques.may_join_backward():
            why = "a block compiled whole makes all its gradients at once"
            rows.append({"what": "to run: schedules that split the backward", "why": why})
        return rows
