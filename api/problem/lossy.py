"""``--allow``: lossy techniques that a search may use, with notes."""

from __future__ import annotations

import math
from dataclasses import replace

from ...costmodel.technique import TechniquePrices
from ...planner.technique import KnownTechniques
from ...spec.errors import InputError, nearest_name
from ...spec.plan.plan import Plan
from ...spec.plan.technique_groups import plan_lossy_values
from ...spec.report.report import Assumption
from ...spec.technique import TechniqueValue, Values
from ...spec.techniques import TECHNIQUES

ALLOW_FLAG = "--allow"
LOSSY_PREFIX = "lossy"
"""Prefix of the paths of notes on lossy values."""


def allow_lossy(
    techniques: KnownTechniques, text: str | None, field: str = ALLOW_FLAG
) -> KnownTechniques:
    """Allow the lossy techniques that ``NAME[:CAP],…`` names, up to their caps.

    Raises:
        InputError: no technique with lossy values that a search tries; others are pinned. A cap
            that is not a positive number.
    """
    lossy = [
        value.name
        for value, choice in techniques.plannable
        if choice.tries_any and _has_lossy(value)
    ]
    caps = dict(techniques.allowed)
    for entry in (entry.strip() for entry in (text or "").split(",")):
        if not entry:
            continue
        name, colon, cap = entry.partition(":")
        if name not in lossy:
            allowed = f"lossy techniques: {', '.join(lossy) or 'none is built yet'}"
            raise InputError(field, name, allowed, nearest_name(name, lossy))
        caps[name] = _cap(name, cap, field) if colon else math.inf
    return replace(techniques, allowed=tuple(sorted(caps.items())))


def _cap(name: str, text: str, field: str) -> float:
    try:
        cap = float(text)
    except ValueError:
        cap = math.nan
    if not 0 < cap < math.inf:
        allowed = f"{name} alone, or {name}:CAP with a positive number, of its bound's unit"
        raise InputError(field, f"{name}:{text}", allowed, name)
    return cap


def _has_lossy(value: TechniqueValue) -> bool:
    return any(value.lossy(one) is not None for one in value.samples)


def lossy_notes(plan: Plan, techniques: Values = TECHNIQUES) -> tuple[Assumption, ...]:
    """Notes on a plan's lossy values and their bounds, for the top."""
    bounds = plan_lossy_values(plan, techniques)
    return tuple(
        Assumption(path=f"{LOSSY_PREFIX}.{name.partition('=')[0]}", value=name, why=bound)
        for name, bound in bounds.items()
    )


def unmeasured_notes(plan: Plan, prices: TechniquePrices) -> tuple[Assumption, ...]:
    """Notes on values whose hidden collectives nobody measured, for the top."""
    strategies = set(plan.layer_strategies())
    why = (
        "analytic: how much of its collectives it hides is unmeasured; priced as if none, and the "
        "interval reaches to all"
    )
    return tuple(
        Assumption(path=f"unmeasured.{price.name}", value=word, why=why)
        for price in prices
        if price.may_hide is not None
        for word in sorted(
            {
                price.value.word_of(one.techniques[price.name])
                for one in strategies
                if price.may_hide(one)
            }
        )
    )
