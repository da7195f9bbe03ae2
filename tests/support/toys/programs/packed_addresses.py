"""packed_addresses, a program's technique that only tests have: addresses of tensors by a plan.

Its allocator leaves no gaps, and its table of addresses is on the device and copied beside every
second step. Exact, and not run: value, price and choice alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shardwright.costmodel.program_technique import (
    ProgramPrice,
    StepAddition,
    StepLaneWork,
    StepShape,
)
from shardwright.costmodel.symbolic.tier_bytes import StateBytes
from shardwright.costmodel.technique import TechniquePrice
from shardwright.planner.technique import KnownTechniques, TechniqueChoice
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.program_rules import ProgramRules
from shardwright.spec.report.work_items import TO_HOST, streamed
from shardwright.spec.technique import TechniqueValue

NAME = "packed_addresses"
ENTRIES = 2**20
TABLE_BYTES = 8 * ENTRIES
EVERY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAddresses:
    """The order in which tensors are placed."""

    order: Literal["birth", "size"] = "birth"


def stack(software: StackSpec, value: PackedAddresses) -> StackSpec:
    """No bytes between tensors."""
    return replace(software, allocator=replace(software.allocator, fragmentation=0.0))


def step(shape: StepShape, value: PackedAddresses) -> StepAddition:
    """The table, and its copy for whoever reads traces."""
    copy = streamed(TO_HOST, ENTRIES, 2 * TABLE_BYTES, "int64")
    return StepAddition(
        beside=(StepLaneWork("to_host", (copy,)),),
        every=EVERY,
        resident_bytes=TABLE_BYTES,
        resident_tier_bytes=(StateBytes("host", TABLE_BYTES),),
    )


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=PackedAddresses,
    program=ProgramRules(executable=False),
    words=("birth", "size"),
    word_of=lambda value: value.order,
    from_word=lambda word: PackedAddresses(order=word) if word in ("birth", "size") else None,  # type: ignore[arg-type]
    help="Addresses of tensors by a plan: none, birth or size.",
)
PRICE = TechniquePrice(value=TECHNIQUE, program=ProgramPrice(stack=stack, step=step))
CHOICE = TechniqueChoice(name=NAME, tried_in_program=lambda place: (PackedAddresses(),))
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
