"""Cost records: seconds of passes by term, and of units' traffic."""

from __future__ import annotations

from typing import NamedTuple

TERMS = (
    "matmul",
    "attention",
    "elementwise",
    "recompute",
    "exposed_tp",
    "exposed_cp",
    "exposed_ep",
    "optimizer",
    "host",
    "technique",
)
"""Terms of a pass by number; ``technique`` is the sum of all techniques, named beside it."""
TERM_NUMBER = {name: number for number, name in enumerate(TERMS)}
EXPOSED_EP = TERM_NUMBER["exposed_ep"]
TECHNIQUE = TERM_NUMBER["technique"]
SERIAL_TERMS = tuple(TERM_NUMBER[name] for name in ("exposed_tp", "exposed_cp", "exposed_ep"))
"""Terms of communication inside layers."""
NO_SERIAL = (0.0,) * len(SERIAL_TERMS)
KERNEL_TERMS = ("matmul", "attention", "elementwise", "recompute")
TermSeconds = tuple[float, ...]
TechniqueSeconds = tuple[tuple[str, float], ...]
"""Seconds by name of technique."""


class PassCost(NamedTuple):
    """Seconds of a layer's pass on the compute stream, by term.

    ``priced_s`` of them are kernels and collectives; of these ``measured_s`` rest on measurements
    of this machine or its kind, ``learned_s`` on prices learned from others. ``technique_s`` is
    techniques' term by name, ``serial_s`` the communication of ``SERIAL_TERMS`` that runs beside
    nothing of its pass, ``beside_pass_s`` that beside all its kernels, undisturbed.
    """

    time_s: float
    terms_s: TermSeconds
    priced_s: float
    measured_s: float
    learned_s: float = 0.0
    technique_s: TechniqueSeconds = ()
    serial_s: TermSeconds = NO_SERIAL
    beside_pass_s: float = 0.0


class TrafficCost(NamedTuple):
    """Seconds of a gather or reduction: kernels and collectives."""

    kernels_s: float
    collectives_s: float


class GatherCost(NamedTuple):
    """Seconds of a unit's gathers: before forward, before backward, outer (per step).

    ``fetched_s``: copies from the host before each gather, part of its kernels.
    """

    forward: TrafficCost
    backward: TrafficCost
    outer: TrafficCost
    fetched_s: float


class ReduceCost(NamedTuple):
    """Seconds of a unit's gradient reductions, and accumulation around them.

    ``fresh``: reduction of one micro-batch's gradients; ``accumulated_kernels_s``: kernels of the
    reduction of accumulated ones; ``outer``: once per step. ``upcast_s``: cast of a first
    micro-batch's gradients; ``accumulate_upcast_s``: addition of a later one's;
    ``accumulate_shard_s``: addition of reduced shards. ``offloaded_s``, part of ``fresh`` and of
    the accumulated kernels, and ``fetched_s``, part of the addition: copies to the host and back.
    ``after_passes_s``: collectives after all passes of the stage, where the stack has them there;
    they are in no other figure.
    """

    fresh: TrafficCost
    outer: TrafficCost
    accumulated_kernels_s: float
    accumulate_shard_s: float
    upcast_s: float
    accumulate_upcast_s: float
    after_passes_s: float = 0.0
    offloaded_s: float = 0.0
    fetched_s: float = 0.0


class UnitCost(NamedTuple):
    """Seconds of an FSDP unit's traffic."""

    gather: GatherCost
    reduce: ReduceCost
