"""Three techniques that only tests have: of passes, of states, and of both.

Each buys bytes of a device with time: ``parked_inputs`` (a family of one number) moves a share of a
block's input to the host between its passes, ``shelved_moments`` a share of one of the
optimizer's moments between updates, and ``packed_moments`` keeps a share of the other in half the
bytes, and reads as much of the input in every forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from shardwright.costmodel.layers.layer import LayerSegment
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape, param_groups
from shardwright.costmodel.symbolic.layer_shape import LayerShape, activation_shape
from shardwright.costmodel.symbolic.tier_bytes import StateBytes
from shardwright.costmodel.technique import (
    AddedLaneWork,
    AddedWork,
    LayerAddition,
    TechniquePrice,
    with_addition,
)
from shardwright.planner.technique import KnownTechniques, Place, TechniqueChoice
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.number_family import NumberFamily
from shardwright.spec.report.work_items import TO_DEVICE, TO_HOST, streamed
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import LayerKinds, TechniqueValue
from shardwright.spec.workload.number_formats import DTYPE_BYTES

PARKED, SHELVED, PACKED = "parked_inputs", "shelved_moments", "packed_moments"
SHARES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedInputs:
    """The share of a block's input that waits on the host."""

    share: Annotated[float, Field(ge=0, le=1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelvedMoments:
    """Quarters of a moment that wait on the host."""

    quarters: Annotated[int, Field(ge=1, le=SHARES)] = SHARES


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMoments:
    """Quarters of a moment in half the bytes."""

    quarters: Annotated[int, Field(ge=1, le=SHARES)] = SHARES


def _part(strategy: LayerStrategy, name: str, elements: int) -> int:
    value: Any = strategy.techniques[name]
    return value.quarters * elements // SHARES


def parked(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """Copies of a block's input, down beside its forward and up beside the layer before."""
    value: ParkedInputs = shape.strategy.techniques[PARKED]
    whole = math.prod(activation_shape(shape, shape.strategy, shape.seq_len, segment.hidden))
    elements = math.floor(value.share * whole)
    size = elements * DTYPE_BYTES[shape.dtype]
    down = streamed(TO_HOST, elements, 2 * size, shape.dtype)
    up = streamed(TO_DEVICE, elements, 2 * size, shape.dtype)
    return LayerAddition(
        beside_forward=(AddedLaneWork(lane="to_host", items=(down,), begins="after", lag=2),),
        beside_backward=(AddedLaneWork(lane="to_device", items=(up,), begins="before"),),
        kept_bytes=-size,
        kept_tier_bytes=(("host", size),),
    )


def _moment_bytes(shape: UnitShape, name: str) -> int:
    """Bytes of a technique's quarters of one fp32 moment."""
    value: Any = shape.strategy.techniques[name]
    elements = sum(part.shard for part in param_groups(shape) if part.trained)
    return int(value.quarters) * elements


def shelved(shape: UnitShape, states: FsdpUnit) -> FsdpUnit:
    """A moment of which a part comes up for the update and goes down after it."""
    size = _moment_bytes(shape, SHELVED)
    up, down = (streamed(op, size, 2 * size, "int8") for op in (TO_DEVICE, TO_HOST))
    return with_addition(
        replace(states, optimizer_bytes=states.optimizer_bytes - size),
        SHELVED,
        resident_tier_bytes=(StateBytes("host", size, "optimizer"),),
        beside_update=(
            AddedLaneWork(lane="to_device", items=(up,), begins="with"),
            AddedLaneWork(lane="to_host", items=(down,), begins="with"),
        ),
    )


def packed(shape: UnitShape, states: FsdpUnit) -> FsdpUnit:
    """Another moment of which a part is unpacked for the update, and packed after it."""
    size = _moment_bytes(shape, PACKED)
    unpacks = streamed("cast", size, 3 * size // 2, "int8")
    without = replace(states, optimizer_bytes=states.optimizer_bytes - size // 2)
    return with_addition(without, PACKED, update=(unpacks, unpacks))


def reads(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """A read of the block's input in every forward, as much of it as is packed."""
    whole = math.prod(activation_shape(shape, shape.strategy, shape.seq_len, segment.hidden))
    elements = _part(shape.strategy, PACKED, whole)
    read = streamed("foreach_norm", elements, elements * DTYPE_BYTES[shape.dtype], shape.dtype)
    return LayerAddition(forward=AddedWork(items=(read,)))


def _technique(name: str, value: Callable[..., Any], what: str) -> TechniqueValue:
    words = tuple(f"q{n}" for n in range(1, SHARES + 1))
    return TechniqueValue(
        name=name,
        value=value,  # type: ignore[arg-type]
        kinds=LayerKinds.all_of("block"),
        words=words,
        word_of=lambda one: f"q{one.quarters}",
        from_word=lambda word: value(quarters=words.index(word) + 1) if word in words else None,
        help=f"Quarters of {what}: none, q1 to q{SHARES}.",
    )


FAMILY = NumberFamily(
    word="part",
    low=0.0,
    high=1.0,
    make=lambda share: ParkedInputs(share=share),
    number_of=lambda value: value.share,
    above_chord=True,
)
VALUES = (
    TechniqueValue(
        name=PARKED,
        value=ParkedInputs,
        kinds=LayerKinds.all_of("block"),
        words=("all",),
        word_of=lambda one: "all" if one.share == 1 else FAMILY.word_of(one.share),
        from_word=lambda word: ParkedInputs() if word == "all" else None,
        families=(FAMILY,),
        help="Blocks' inputs on the host: none, all or part:SHARE.",
    ),
    _technique(SHELVED, ShelvedMoments, "a moment on the host"),
    _technique(PACKED, PackedMoments, "a moment in half the bytes"),
)
PRICES = (
    TechniquePrice(value=VALUES[0], layer=parked),
    TechniquePrice(value=VALUES[1], unit=shelved),
    TechniquePrice(value=VALUES[2], layer=reads, unit=packed),
)


def _choice(value: TechniqueValue, needs_host: bool) -> TechniqueChoice:
    def cluster_violation(cluster: ClusterSpec) -> str | None:
        granted = all(group.memory.host_bytes for group in cluster.groups)
        return "the cluster has no memory of its hosts" if needs_host and not granted else None

    def tried(place: Place) -> Iterable[Any]:
        return value.samples

    return TechniqueChoice(name=value.name, tried=tried, cluster_violation=cluster_violation)


KNOWN = KnownTechniques(
    values=VALUES,
    prices=PRICES,
    choices=tuple(_choice(value, value.name != PACKED) for value in VALUES),
)
