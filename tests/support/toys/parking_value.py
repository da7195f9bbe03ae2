"""parked_outputs, a technique that only tests have: copies of blocks' outputs wait on the host.

A family of one number, the share of tokens that is copied. It frees nothing, so no search chooses
it unasked; what it costs shows on lanes both ways and in the host's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from shardwright.spec.model.model_spec import Layer
from shardwright.spec.number_family import NumberFamily
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import LayerKinds, TechniqueValue
from shardwright.spec.workload.workload import DtypeRecord

NAME = "parked_outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedOutputs:
    """The share of a block's output that is copied to the host and back."""

    share: Annotated[float, Field(ge=0, le=1)] = 1.0


def share_of(strategy: LayerStrategy) -> float:
    """The share of a layer that parks."""
    found: ParkedOutputs = strategy.techniques[NAME]
    return found.share


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """Some refusal, for tests."""
    return None if strategy.cp == 1 else "outputs of a ring are not parked"


FAMILY = NumberFamily(
    word="part",
    low=0.0,
    high=1.0,
    make=lambda share: ParkedOutputs(share=share),
    number_of=lambda value: value.share,
    above_chord=True,
)
TECHNIQUE = TechniqueValue(
    name=NAME,
    value=ParkedOutputs,
    kinds=LayerKinds.all_of("block"),
    words=("all",),
    word_of=lambda value: "all" if value.share == 1 else FAMILY.word_of(value.share),
    from_word=lambda word: ParkedOutputs() if word == "all" else None,
    families=(FAMILY,),
    help="Copies of blocks' outputs on the host: none, all or part:SHARE.",
    legality_violation=legality_violation,
)
