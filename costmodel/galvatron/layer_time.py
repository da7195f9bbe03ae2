"""Seconds of one layer for one micro-batch, as Galvatron counts them.

With f = m·(b/t) + c the forward milliseconds for b samples on t ranks, backward takes 2f, and f
more with recomputation. Gradients of p MB of weights are 2(d-1)/d · p MB on d ranks, half of it in
16 bits, and are reduced beside the backward, both slowed by k while they coexist: max(reduce,
backward) + (k-1)·min(reduce, backward). ZeRO-3 adds half that message, fully exposed. Tensor
parallelism adds 6 all-gathers, Ulysses 4 all-to-alls, half as many again with recomputation. A
pipeline's message is charged once for all layers of a type.
"""

from __future__ import annotations

from typing import NamedTuple

from .job import GalvatronJob
from .strategy import GalvatronStrategy

BACKWARD = 2.0
GATHERS, EXCHANGES, RECOMPUTED_MESSAGES = 6, 4, 1.5
MS = 0.001


class LayerTime(NamedTuple):
    """Seconds of a layer in a micro-batch, and a gradient reduction's addition.

    ``parts`` of the first: computation, recomputation, split layers' messages, parameter gathers,
    messages between stages.
    """

    plain_s: float
    reduce_s: float
    parts: tuple[float, ...]


def layer_time(
    job: GalvatronJob, layer_type: int, strategy: GalvatronStrategy, microbatches: int
) -> LayerTime:
    """Seconds of a layer; its strategy's data-parallel ranks divide the micro-batch."""
    samples = job.samples(microbatches, strategy.dp)
    forward = job.forward[layer_type].at(samples / strategy.degree)
    recomputed = forward if strategy.recompute else 0.0
    weights_mb = job.profile.model.layers[layer_type].parameter_mb / strategy.tp
    reduce_mb = _reduced_mb(job, weights_mb, strategy.shard_ranks)
    per_mb = job.rates.reduce_ms_per_mb(strategy.shard_ranks, strategy.tp == 1)
    gather = reduce_mb * 0.5 * per_mb if strategy.zero3 else 0.0
    stage_messages = 0.0
    if strategy.pp > 1:
        stage_messages = _stage_ms(job, layer_type, strategy, samples) / job.layers[layer_type]
    messages = _messages_ms(job, layer_type, strategy, samples)
    parts = (forward * (1 + BACKWARD), recomputed, messages, gather, stage_messages)
    added = 0.0
    if strategy.dp > 1:
        backward, reduce = forward * BACKWARD + recomputed, reduce_mb * per_mb
        overlapped = max(reduce, backward) + (job.rates.slowdown - 1) * min(reduce, backward)
        added = overlapped - backward
    in_s = tuple(part * MS for part in parts)
    return LayerTime(sum(in_s), added * MS, in_s)


def _reduced_mb(job: GalvatronJob, weights_mb: float, ranks: int) -> float:
    """MB per rank of a gradient reduction of 32-bit weights."""
    sent_mb = 2 * (ranks - 1) * (weights_mb / ranks)
    return sent_mb / 2 if job.half else sent_mb


def _messages_ms(
    job: GalvatronJob, layer_type: int, strategy: GalvatronStrategy, samples: int
) -> float:
    if strategy.degree == 1:
        return 0.0
    size_mb = job.message_mb(layer_type, samples)
    factor = RECOMPUTED_MESSAGES if strategy.recompute else 1.0
    if strategy.tp == 1:
        return job.rates.exchange_ms(strategy.sp, size_mb) * (EXCHANGES * factor)
    return job.rates.gather_ms(strategy.tp, size_mb) * (GATHERS * factor)


def _stage_ms(
    job: GalvatronJob, layer_type: int, strategy: GalvatronStrategy, samples: int
) -> float:
    """Message between stages, which Galvatron multiplies by their number."""
    tokens = samples * job.seq_lens[layer_type] * job.hidden[layer_type]
    size_mb = strategy.pp * 2 * tokens * 4 / 1024 / 1024
    return (size_mb / 2 if job.half else size_mb) * job.rates.stage_ms_per_mb(strategy.pp)
