"""address_plan: addresses of a step's tensors, planned before it runs.

Exact: the same numbers, elsewhere. Planned where a pin asks for it, simulated and run. The offsets
are derived from the plan, not decided by it. The card is in ``costmodel.techniques.address_plan``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..program_rules import ProgramRules
from ..technique import TechniqueValue

NAME = "address_plan"
MIP = "mip"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """Addresses as a mixed-integer program has them, or a heuristic that meets its bound."""

    solver: Literal["mip"] = "mip"


def from_word(word: str) -> AddressPlan | None:
    """The value of a word; None: it is none."""
    return AddressPlan() if word == MIP else None


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=AddressPlan,
    program=ProgramRules(plans_addresses=True),
    words=(MIP,),
    word_of=lambda value: MIP,
    from_word=from_word,
    help="Addresses of a step's tensors: none (the allocator's) or mip (planned).",
    metavar="A",
    systems=("MEMO",),
)
