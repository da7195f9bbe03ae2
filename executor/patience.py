"""How long ranks wait for each other: longer in plans whose layers a compiler takes first.

Each stage compiles in the first step, when its turn comes, and the others wait for it.
"""

from __future__ import annotations

from ..spec.plan import Plan
from ..spec.techniques.compile import mode_of

COLLECTIVE_S, SILENT_S = 60.0, 5.0
COMPILING_S, COMPILING_SILENT_S = 600.0, 60.0


def collective_timeout_s(plan: Plan) -> float:
    """How long a rank waits in a collective for the others."""
    return COMPILING_S if _compiles(plan) else COLLECTIVE_S


def silent_after_s(plan: Plan) -> float:
    """How long a rank may send no heartbeat: a compiler may keep the interpreter to itself."""
    return COMPILING_SILENT_S if _compiles(plan) else SILENT_S


def _compiles(plan: Plan) -> bool:
    return any(mode_of(strategy) is not None for strategy in plan.layer_strategies())
