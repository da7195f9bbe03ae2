"""Galvatron's options for one pair of micro-batches and stages.

Degrees are powers of two up to 8, as in its search. A layer has ``pp`` stages, tensor parallelism
or Ulysses, data parallelism over the rest with ZeRO-2 or ZeRO-3, and recomputation; embedding and
head share one strategy without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...costmodel.galvatron.embedding_head import embedding_head_memory, embedding_head_seconds
from ...costmodel.galvatron.job import GalvatronJob
from ...costmodel.galvatron.layer_memory import layer_memory
from ...costmodel.galvatron.layer_time import layer_time
from ...costmodel.galvatron.plan_cost import even_division
from ...costmodel.galvatron.strategy import GalvatronStrategy
from ..tables.arrays import Floats, Ints

MOST_DEGREE = 8
"""Galvatron's default limit of stages and of ranks that work on one sample."""
LayerRole = Literal["layers", "ends"]
Legal = Callable[[LayerRole, GalvatronStrategy], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStrategy:
    """Strategy of embedding and head: seconds and MB by stage."""

    strategy: GalvatronStrategy
    seconds: tuple[float, ...]
    used_mb: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """Strategies of layers and ends, for some micro-batches and stages.

    ``plain_s`` and ``reduce_s``: by layer type and strategy. ``used_mb``: by stage, layer type and
    strategy.
    """

    microbatches: int
    division: tuple[int, ...]
    strategies: tuple[GalvatronStrategy, ...]
    plain_s: Floats
    reduce_s: Floats
    used_mb: Ints
    ends: tuple[HeadStrategy, ...]

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.division)


def always_legal(role: LayerRole, strategy: GalvatronStrategy) -> bool:
    """Predicate of no restriction."""
    return True


def options_of(
    job: GalvatronJob, microbatches: int, stages: int, legal: Legal = always_legal
) -> StrategyOptions:
    """All strategies of layers and ends, priced once.

    Raises:
        InputError: the profile lacks a figure.
    """
    splits = _splits(job, microbatches, stages)
    layers = [s for s in splits if _measured(job, s) and legal("layers", s)]
    types = range(len(job.layers))
    times = [[layer_time(job, t, s, microbatches) for s in layers] for t in types]
    heads = [s for s in splits if _may_be_ends(job, s) and legal("ends", s)]
    return StrategyOptions(
        microbatches=microbatches,
        division=even_division(sum(job.layers), stages),
        strategies=tuple(layers),
        plain_s=np.array([[time.plain_s for time in row] for row in times]),
        reduce_s=np.array([[time.reduce_s for time in row] for row in times]),
        used_mb=np.array(
            [
                [
                    [layer_memory(job, t, s, microbatches, stage).whole_mb for s in layers]
                    for t in types
                ]
                for stage in range(stages)
            ]
        ),
        ends=tuple(_ends(job, s, microbatches) for s in heads),
    )


def degrees_of(job: GalvatronJob) -> list[int]:
    """Powers of two up to the devices and to Galvatron's limit."""
    most = min(job.devices, MOST_DEGREE)
    return [2**n for n in range(most.bit_length())]


def _splits(job: GalvatronJob, microbatches: int, stages: int) -> list[GalvatronStrategy]:
    ranks, samples = job.devices // stages, job.global_batch // microbatches
    splits = []
    for degree in degrees_of(job):
        if ranks % degree or samples % (ranks // degree):
            continue
        dp = ranks // degree
        for tp, sp in ((degree, 1), (1, degree)) if degree > 1 else ((1, 1),):
            for zero3 in (False, True) if dp > 1 else (False,):
                splits += [
                    GalvatronStrategy(stages, tp, sp, dp, zero3, recompute)
                    for recompute in (False, True)
                ]
    return splits


def _measured(job: GalvatronJob, strategy: GalvatronStrategy) -> bool:
    return all(strategy.degree in layer.activation_mb for layer in job.profile.model.layers)


def _may_be_ends(job: GalvatronJob, strategy: GalvatronStrategy) -> bool:
    if strategy.recompute:
        return False
    model = job.profile.model
    ends = (model.together,) if strategy.pp == 1 else (model.first, model.last)
    return all(strategy.tp in e.states_mb and strategy.degree in e.activation_mb for e in ends)


def _ends(job: GalvatronJob, strategy: GalvatronStrategy, microbatches: int) -> HeadStrategy:
    memory = embedding_head_memory(job, strategy, microbatches)
    return HeadStrategy(
        strategy=strategy,
        seconds=embedding_head_seconds(job, strategy, microbatches),
        used_mb=tuple(part.whole_mb for part in memory),
    )
