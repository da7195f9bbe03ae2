"""sign_updates, a program's technique that only tests have: steps along signs of gradients.

In place of the optimizer, without states (Bernstein et al., arXiv:1802.04434, algorithm 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.program_rules import ProgramRules
from shardwright.spec.technique import Lossy, TechniqueValue

NAME = "sign_updates"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignUpdates:
    """How a tie is broken."""

    zeros: Literal["stay"] = "stay"


def stack_violation(value: SignUpdates, stack: StackSpec) -> str | None:
    """Gradients must be where weights are."""
    if stack.state_layout == "fsdp2":
        return None
    return f"the stack {stack.name} has gradients in buffers"


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=SignUpdates,
    program=ProgramRules(
        stack_violation=stack_violation,
        claims=lambda value: frozenset({"optimizer"}),
    ),
    words=("plain",),
    word_of=lambda value: "plain",
    from_word=lambda word: SignUpdates() if word == "plain" else None,
    help="Updates by signs of gradients: none or plain.",
    lossy=lambda value: Lossy(bound=1.0, of="updates of weights"),
)
