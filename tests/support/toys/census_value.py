"""gradient_census, a technique that only tests have.

Once a block's gradients are complete, every rank counts their squares: ``each`` sums them over all
ranks of the stage at once, in a process group of its own; ``held`` adds them up where they are,
which needs no message and as many bytes as the gradients, and lets old ones fade with the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.model_spec import Layer
from shardwright.spec.parallel.rank_groups import RankGroup
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import LayerKinds, TechniqueValue
from shardwright.spec.workload.workload import DtypeRecord

NAME = "gradient_census"
MODES: tuple[Literal["each", "held"], ...] = ("each", "held")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCensus:
    """Sums of squared gradients: over all ranks at once, or in place."""

    mode: Literal["each", "held"] = "each"


def mode_of(strategy: LayerStrategy) -> str:
    """The mode of a layer that holds a census."""
    found: GradientCensus = strategy.techniques[NAME]
    return found.mode


def groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    """All ranks of the stage, for what is summed at once."""
    return (RankGroup(stage_ranks, 1),) if mode_of(strategy) == "each" else ()


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """Squares of narrow gradients overflow."""
    return None if dtype.master == "fp32" else f"a census of {dtype.master} gradients overflows"


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """Gradients must be where parameters are."""
    if stack.state_layout == "fsdp2":
        return None
    return f"the stack {stack.name} has gradients in buffers"


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=GradientCensus,
    kinds=LayerKinds.all_of("block"),
    words=MODES,
    word_of=lambda value: value.mode,
    from_word=lambda word: next((GradientCensus(mode=m) for m in MODES if m == word), None),
    help="Counts of squared gradients: none, each or held.",
    metavar="G",
    legality_violation=legality_violation,
    stack_violation=stack_violation,
    groups=groups,
)
