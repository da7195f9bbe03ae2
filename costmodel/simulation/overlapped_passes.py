"""Two passes that overlap: a forward and a backward of different micro-batches (DualPipe).

Each pass is work on the compute stream and communication inside its layers, in line. Beside
each other the communication of one hides behind the work of the other (DeepSeek-V3, 2024,
section 3.2.1), so the pair takes at least the work of both, the communication of both, and
either pass alone; the longest of these is taken. What is hidden slows both by the stack's
factor, as in :mod:`overlap`. Communication that the stack hides inside a pass anyway, sharding's
traffic first of all, keeps that overlap and gets no second one; it counts as work. Never
decreasing in any duration, and never longer than one pass after the other.
"""

from __future__ import annotations

from ...spec.cluster.stack_spec import OverlapKinds
from ...spec.schedules.stage_order import ScheduleKind
from ..pricing.costs import PassCost
from ..pricing.pricer import Pricer
from .pass_time import PASS_TERMS, PassTime, sum_by_name

PAIRED_KINDS: tuple[ScheduleKind, ...] = ("dualpipe",)
"""Schedules some of whose passes overlap in pairs."""

INSIDE_LAYERS = {f"exposed_{kind}": kind for kind in ("tp", "cp", "ep")}
"""Terms of communication inside layers, and the kind of overlap that hides it there."""
MAX_SLOWDOWN = 2.0
"""With this factor two passes beside each other take as long as in turn."""


def serial_terms(overlaps: OverlapKinds) -> tuple[int, ...]:
    """The terms, by number in PASS_TERMS, of communication that passes leave in line."""
    return tuple(
        PASS_TERMS.index(term)
        for term, kind in INSIDE_LAYERS.items()
        if not getattr(overlaps, kind)
    )


def overlappable_terms(pricer: Pricer) -> tuple[int, ...]:
    """The terms that hide beside another pass: none where everything runs in line."""
    return serial_terms(pricer.overlaps) if pricer.hides_sharding else ()


def min_overlapped_s(cost: PassCost, hides: tuple[int, ...]) -> float:
    """Seconds that a layer's pass takes at least, whatever runs beside it.

    Args:
        cost: of the pass alone.
        hides: from :func:`overlappable_terms`.
    """
    return cost.time_s - sum(cost.terms_s[number] for number in hides)


def pair_hidden_s(one_s: float, other_s: float, inside_s: float, slowdown: float) -> float:
    """By how much less two passes take beside each other than one after the other.

    Args:
        one_s: seconds of a pass alone.
        other_s: seconds of the pass that it starts with.
        inside_s: what both have of communication that may hide.
        slowdown: factor of work and communication while they share the device.
    """
    in_turn_s = one_s + other_s
    hidden_s = in_turn_s - max(in_turn_s - inside_s, inside_s, one_s, other_s)
    return hidden_s - (min(slowdown, MAX_SLOWDOWN) - 1.0) * hidden_s


def pair_time(one: PassTime, other: PassTime, serial: tuple[int, ...], slowdown: float) -> PassTime:
    """Seconds of two passes that overlap.

    Args:
        one: a pass.
        other: the pass that it starts with.
        serial: terms of communication that may hide, from :func:`serial_terms`.
        slowdown: factor of work and communication while they share the device.
    """
    terms = [a + b for a, b in zip(one.terms_s, other.terms_s, strict=True)]
    in_turn_s = one.time_s + other.time_s
    inside_s = sum(terms[number] for number in serial)
    hidden_s = pair_hidden_s(one.time_s, other.time_s, inside_s, slowdown)
    for number in serial:
        terms[number] *= 1.0 - hidden_s / inside_s if inside_s else 1.0
    return PassTime(
        in_turn_s - hidden_s,
        terms,
        one.priced_s + other.priced_s,
        one.measured_s + other.measured_s,
        one.learned_s + other.learned_s,
        technique_s=sum_by_name(one.technique_s.items(), other.technique_s.items()),
    )
