"""Planned addresses: only at a pin's request.

They save gaps between tensors, which the allocator of each device leaves in its own way; what they
save on an accelerator is not measured yet.
"""

from __future__ import annotations

from ...spec.techniques.address_plan import NAME
from ..technique import TechniqueChoice

UNTRIED = "what it saves is unmeasured on accelerators, so it is taken only where it is pinned"

TECHNIQUE = TechniqueChoice(name=NAME, untried=UNTRIED)
