"""address_plan: the price of addresses that are planned before the step.

Paper: Zhao et al., MEMO (SIGMOD 2025, arXiv 2407.12117), section 4.3: bi-level memory planning.

The idea: a training step asks for the same tensors in the same order every time, so their addresses
can be solved for once, where a caching allocator answers as it goes and leaves gaps. Layers are
solved first, each kind's forward and backward, then the step with them as blocks. The run answers
each request with its planned address.

Symbols: L most bytes live at once; f fraction of live bytes that the stack's allocator leaves in
gaps; A bytes of the solved arena.

Cost: reserved = L + f L + what libraries take becomes L + 0.02 L + the same. No kernel changes, so
no second does. A is between L and 1.02 L in all 24 rehearsed steps of the evidence, so 0.02 stands
for a plan that nobody has recorded yet (source: analytic). ``plan execute --dry-run`` says A.

Takeaway: it buys bytes, not time: where 2 % of the live bytes decide whether a plan fits.

Worked number: 60 GiB live on an 80 GiB device, f 0.04: 2.4 GiB in gaps become 1.2 GiB.

Limits: the arena has what passes ask for; weights and optimizer states are L as before. Experts ask
for sizes that tokens choose, which a plan cannot know: they are torch's own. Replayed on cores so
far, from the second step on.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.techniques.address_plan import TECHNIQUE as VALUE
from ...spec.techniques.address_plan import AddressPlan
from ..program_technique import ProgramPrice
from ..technique import TechniquePrice

ARENA_SLACK = 0.02
"""Bytes of an arena beyond live bytes, as a fraction of them: the most that a solution may have
(kept by the evidence ``addresses``)."""


def packed_stack(stack: StackSpec, value: AddressPlan) -> StackSpec:
    """The stack with no more between tensors than a solved arena has."""
    allocator = stack.allocator
    fragmentation = min(allocator.fragmentation, ARENA_SLACK)
    return replace(stack, allocator=replace(allocator, fragmentation=fragmentation))


TECHNIQUE = TechniquePrice(value=VALUE, program=ProgramPrice(stack=packed_stack))
