"""Two overlapping passes: a forward and a backward of different micro-batches (DualPipe).

Each pass is work on the compute stream and serial communication inside its layers. Overlapped, the
communication of one hides behind the work of the other (DeepSeek-V3, 2024, section 3.2.1), so the
pair takes at least the work of both, the communication of both, and either pass alone; the longest
of these is taken. Hidden communication slows both by the stack's factor, as in :mod:`overlap`.
Communication that runs beside work of its own pass, sharding traffic above all, keeps that overlap
and counts as work. Never decreasing in any duration, and never longer than one pass after
the other.
"""

from __future__ import annotations

from ...spec.schedules.stage_order import ScheduleKind
from ..pricing.costs import SERIAL_TERMS, PassCost
from .pass_time import PassTime, sum_by_name

PAIRED_KINDS: tuple[ScheduleKind, ...] = ("dualpipe",)
"""Schedules with passes that overlap in pairs."""

MAX_SLOWDOWN = 2.0
"""With this factor two overlapped passes take as long as in turn."""


def min_overlapped_s(cost: PassCost, hides: bool) -> float:
    """Lower bound of a layer pass's seconds, whatever it overlaps with.

    Args:
        cost: of the pass alone.
        hides: True if passes overlap at all.
    """
    return cost.time_s - sum(cost.serial_s) if hides else cost.time_s


def pair_hidden_s(one_s: float, other_s: float, overlappable_s: float, slowdown: float) -> float:
    """Seconds saved by overlapping two passes instead of running them in turn.

    Args:
        one_s: seconds of a pass alone.
        other_s: seconds of the pass that it starts with.
        overlappable_s: both passes' communication that may hide.
        slowdown: factor of work and communication while they share the device.
    """
    in_turn_s = one_s + other_s
    hidden_s = in_turn_s - max(in_turn_s - overlappable_s, overlappable_s, one_s, other_s)
    return hidden_s - (min(slowdown, MAX_SLOWDOWN) - 1.0) * hidden_s


def pair_time(one: PassTime, other: PassTime, slowdown: float, hides: bool = True) -> PassTime:
    """Seconds of two overlapping passes.

    Args:
        one: a pass.
        other: the pass that it starts with.
        slowdown: factor of work and communication while they share the device.
        hides: False if the stack overlaps nothing.
    """
    terms = [a + b for a, b in zip(one.terms_s, other.terms_s, strict=True)]
    in_turn_s = one.time_s + other.time_s
    serial_s = [a + b for a, b in zip(one.serial_s, other.serial_s, strict=True)]
    overlappable_s = sum(serial_s) if hides else 0.0
    hidden_s = pair_hidden_s(one.time_s, other.time_s, overlappable_s, slowdown)
    for number, seconds in zip(SERIAL_TERMS, serial_s, strict=True):
        kept = 1.0 - hidden_s / overlappable_s if overlappable_s else 1.0
        terms[number] = (terms[number] - seconds) + seconds * kept
    return PassTime(
        in_turn_s - hidden_s,
        terms,
        one.priced_s + other.priced_s,
        one.measured_s + other.measured_s,
        one.learned_s + other.learned_s,
        technique_s=sum_by_name(one.technique_s.items(), other.technique_s.items()),
    )
