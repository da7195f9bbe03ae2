"""Whole MB of one layer on a stage, as Galvatron rounds.

States take four times the 32-bit weights. With d ranks of equal weights, ZeRO-3 keeps 1/d + 0.003
of them; in 16-bit training ZeRO-2 keeps all of an eighth (parameters), and with several
micro-batches, whose gradients add up, of two eighths. Activations of p - s in-flight micro-batches
are kept on stage s of p.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .job import GalvatronJob
from .strategy import GalvatronStrategy

STATES = 4
UNEVEN = 0.003
"""Addition of sharding to an even share."""


class LayerMemory(NamedTuple):
    """MB of states and of activations."""

    states_mb: float
    activation_mb: float

    @property
    def whole_mb(self) -> int:
        """Whole MB counted against the budget."""
        return math.ceil(self.states_mb + self.activation_mb)


def state_share(
    job: GalvatronJob, zero3: bool, replicas: int, ranks: int, microbatches: int
) -> float:
    """Share of a layer's states on one of ``ranks`` with equal weights.

    ``zero3`` shards parameters too; one of ``replicas`` shards nothing.
    """
    if replicas == 1:
        return 1.0
    even = 1 / ranks + UNEVEN
    eighths = (8, 7, 6) if job.half else (8, 6, 4)
    sharded = eighths[(0 if zero3 else 1) + (0 if microbatches == 1 else 1)]
    return even if sharded == 8 else sharded / 8 * even + (8 - sharded) / 8


def layer_memory(
    job: GalvatronJob,
    layer_type: int,
    strategy: GalvatronStrategy,
    microbatches: int,
    stage: int,
) -> LayerMemory:
    """MB of a layer on stage ``stage``, counted from 0."""
    profile = job.profile.model.layers[layer_type]
    share = state_share(job, strategy.zero3, strategy.dp, strategy.shard_ranks, microbatches)
    states = STATES * (profile.parameter_mb / strategy.tp) * share
    in_flight = 1 if strategy.pp == 1 else strategy.pp - stage
    samples = in_flight * job.samples(microbatches, strategy.dp)
    if strategy.recompute:
        return LayerMemory(states, profile.recomputed_mb * samples / strategy.degree)
    return LayerMemory(states, profile.activation_mb[strategy.degree] * samples)
