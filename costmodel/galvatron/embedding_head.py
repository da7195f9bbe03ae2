"""Seconds and whole MB of embedding and head, by stage.

A single stage holds both; of several, the first and the last have half of their work each.
Parameters are gathered forward (ZeRO-3), gathered or reduced backward; overlapped computation is
slowed, communication is not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.galvatron.profile import EmbeddingHeadProfile
from .job import CONTEXT_MB, GalvatronJob
from .layer_memory import state_share
from .layer_time import BACKWARD, MS
from .strategy import GalvatronStrategy


class EmbeddingHeadMemory(NamedTuple):
    """MB of embedding and head on a stage, and its device context."""

    states_mb: float
    activation_mb: float

    @property
    def whole_mb(self) -> int:
        """Whole MB counted against the budget."""
        return math.ceil(self.states_mb + self.activation_mb + CONTEXT_MB)


def embedding_head_seconds(
    job: GalvatronJob, strategy: GalvatronStrategy, microbatches: int
) -> tuple[float, ...]:
    """Seconds by stage of a micro-batch without gradient reduction."""
    samples = job.samples(microbatches, strategy.dp)
    forward = job.ends_forward.at(samples / strategy.degree)
    stages = strategy.pp
    profiles = _profiles(job, stages)
    messages = [_message_ms(job, strategy, samples, end) for end in (0, -1)]
    if stages == 1:
        return (_end_s(job, strategy, forward, profiles[0], sum(messages)),)
    first, last = (
        _end_s(job, strategy, forward / 2, profiles[end], messages[end]) for end in (0, -1)
    )
    return (first, *[0.0] * (stages - 2), last)


def embedding_head_memory(
    job: GalvatronJob, strategy: GalvatronStrategy, microbatches: int
) -> tuple[EmbeddingHeadMemory, ...]:
    """MB by stage; the first of several keeps all in-flight activations."""
    share = state_share(job, strategy.zero3, strategy.dp, strategy.shard_ranks, microbatches)
    samples = job.samples(microbatches, strategy.dp)
    stages, profiles = strategy.pp, _profiles(job, strategy.pp)
    by_stage = [EmbeddingHeadMemory(0.0, 0.0)] * stages
    for stage, in_flight in ((0, stages), (stages - 1, 1)):
        profile = profiles[0 if stage == 0 else -1]
        by_stage[stage] = EmbeddingHeadMemory(
            profile.states_mb[strategy.tp] * share,
            profile.activation_mb[strategy.degree] * (in_flight * samples),
        )
    return tuple(by_stage)


def _profiles(job: GalvatronJob, stages: int) -> tuple[EmbeddingHeadProfile, ...]:
    model = job.profile.model
    return (model.together,) if stages == 1 else (model.first, model.last)


def _message_ms(job: GalvatronJob, strategy: GalvatronStrategy, samples: int, end: int) -> float:
    if strategy.tp == 1:
        return 0.0
    size = 2 if job.half else 4
    size_mb = samples * job.seq_lens[end] * job.hidden[0] * size / 1024 / 1024
    return job.rates.gather_ms(strategy.tp, size_mb)


def _end_s(
    job: GalvatronJob,
    strategy: GalvatronStrategy,
    forward_ms: float,
    profile: EmbeddingHeadProfile,
    message_ms: float,
) -> float:
    ranks = strategy.shard_ranks
    per_mb = job.rates.reduce_ms_per_mb(ranks, strategy.tp == 1) * (ranks - 1) / ranks
    gathered_mb = profile.states_mb[strategy.tp] / 4 * (0.5 if job.half else 1.0) * 0.5
    gather_ms = gathered_mb * per_mb if strategy.zero3 else 0.0
    slowed = job.rates.slowdown
    forward = _overlapped(gather_ms, forward_ms, slowed)
    backward = _overlapped(gather_ms, forward_ms * BACKWARD, slowed)
    return MS * (forward + backward + message_ms)


def _overlapped(communication_ms: float, computation_ms: float, slowdown: float) -> float:
    if computation_ms * slowdown > communication_ms:
        return communication_ms + (computation_ms * slowdown - communication_ms) / slowdown
    return communication_ms
