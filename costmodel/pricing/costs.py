"""Cost records: seconds of a layer pass by term, and of an FSDP unit's traffic."""

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
KERNEL_TERMS = ("matmul", "attention", "elementwise", "recompute")
TermSeconds = tuple[float, ...]
TechniqueSeconds = tuple[tuple[str, float], ...]
"""Seconds by name of technique."""


class PassCost(NamedTuple):
    """Seconds of one layer's pass on the compute stream, by term and source.

    ``priced_s`` of them are kernels and collectives; of these ``measured_s`` rest on measurements
    of this machine or its kind, ``learned_s`` on prices learned from others. ``technique_s`` is the
    term of techniques by name.
    """

    time_s: float
    terms_s: TermSeconds
    priced_s: float
    measured_s: float
    learned_s: float = 0.0
    technique_s: TechniqueSeconds = ()


class UnitCost(NamedTuple):
    """Seconds of a unit's traffic: copies on the compute stream, wires on the network's.

    ``fetched_s`` of the copies before each gather come from the host.
    """

    gather_kernels_s: float
    gather_collectives_s: float
    gather_backward_kernels_s: float
    gather_backward_collectives_s: float
    outer_gather_kernels_s: float
    outer_gather_collectives_s: float
    outer_reduce_kernels_s: float
    outer_reduce_collectives_s: float
    reduce_kernels_s: float
    reduce_collectives_s: float
    reduce_accumulated_kernels_s: float
    accumulate_shard_s: float
    upcast_s: float
    accumulate_upcast_s: float
    fetched_s: float = 0.0
