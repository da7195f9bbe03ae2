"""rounded_inputs, a lossy technique that only tests have: a block's input goes through bf16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardwright.spec.model.model_spec import Layer
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import LayerKinds, Lossy, TechniqueValue
from shardwright.spec.workload.workload import DtypeRecord

NAME = "rounded_inputs"
COUNTS = 9
"""Numbers of eight bytes that a run keeps of every layer."""
BOUND = Lossy(bound=2**-9, of="inputs of blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedInputs:
    """The narrow format."""

    format: Literal["bf16"] = "bf16"


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """Narrow activations are not rounded again."""
    return None if dtype.param == "fp32" else f"activations are {dtype.param} already"


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=RoundedInputs,
    kinds=LayerKinds.all_of("block"),
    words=("bf16",),
    word_of=lambda value: value.format,
    from_word=lambda word: RoundedInputs() if word == "bf16" else None,
    help="Inputs of blocks in a narrow format: none or bf16.",
    legality_violation=legality_violation,
    lossy=lambda value: BOUND,
)
