"""Galvatron's charge for a change of degree between neighboring layers.

An all-gather of (g-1)/g of the activations, g the larger number, at 1e-7 s for a byte over the
bandwidth's GB/s: about a hundred times the bandwidth's meaning. Galvatron weighs layers by it but
leaves it out of its printed time; here a plan pays it, lest changes be free.
"""

from __future__ import annotations

from .job import GalvatronJob

SECONDS_PER_BYTE = 1e-7
"""At 1 GB/s. The bandwidth itself would mean 1e-9."""


def reshard_seconds(
    job: GalvatronJob, layer_type: int, before: int, after: int, stages: int, microbatches: int
) -> float:
    """Seconds per micro-batch of a change of degree before a layer.

    ``before`` and ``after``: ranks per sample on either side.
    """
    if before == after:
        return 0.0
    degree = max(before, after)
    samples = job.global_batch / microbatches / (job.devices // stages // degree)
    one_bytes = job.seq_lens[layer_type] * job.hidden[0] * (2 if job.half else 4)
    per_mb = job.rates.reduce_ms_per_mb(degree, True)
    return (degree - 1) / degree * samples * one_bytes * per_mb * SECONDS_PER_BYTE
