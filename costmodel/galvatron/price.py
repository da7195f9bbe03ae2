"""The price of one whole plan under Galvatron's costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from .ends import ends_memory, ends_seconds
from .job import GalvatronJob
from .layer_memory import layer_memory
from .layer_time import layer_time
from .pipeline import StageTime, exposed_seconds, work_seconds
from .reshard import change_seconds
from .strategy import GalvatronStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronPlan:
    """Every decision of Galvatron's.

    Args:
        layers: the strategy of each layer between embedding and head.
        ends: that of embedding and head.
        microbatches: micro-batches of a step.
        division: layers of each stage.
    """

    layers: tuple[GalvatronStrategy, ...]
    ends: GalvatronStrategy
    microbatches: int
    division: tuple[int, ...]

    @property
    def stages(self) -> list[tuple[GalvatronStrategy, ...]]:
        """The strategies of the layers of each stage."""
        cuts = accumulate(self.division, initial=0)
        return [self.layers[a:b] for a, b in pairwise(cuts)]

    @property
    def buffer_degree(self) -> int:
        """The largest degree in the plan where anything is tensor-parallel; 0 where nothing is."""
        every = (*self.layers, self.ends)
        return max(s.degree for s in every) if any(s.tp > 1 for s in every) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Seconds of a step by part, and whole MB by stage.

    ``step_s`` is all of it, ``change_s`` the part that changes of degree add.
    """

    step_s: float
    work_s: float
    exposed_s: float
    change_s: float
    used_mb: tuple[int, ...]


def even_division(layers: int, stages: int) -> tuple[int, ...]:
    """Galvatron's split of layers over stages: the last one takes the rest."""
    each = layers // stages
    return (each,) * (stages - 1) + (layers - each * (stages - 1),)


def least_buffer_degree(job: GalvatronJob, microbatches: int, stages: int) -> int:
    """The smallest degree that leaves every replica a sample."""
    ranks = job.devices // stages
    return max(1, ranks // max(1, min(job.global_batch // microbatches, ranks)))


def priced(job: GalvatronJob, plan: GalvatronPlan) -> Price:
    """The price of a plan.

    Raises:
        InputError: the profile lacks a figure that it needs.
    """
    types = [kind for kind, count in enumerate(job.layers) for _ in range(count)]
    m, changes = plan.microbatches, 0.0
    ends_s = ends_seconds(job, plan.ends, m)
    with_changes, without = [], []
    start = 0
    for own, strategies in zip(ends_s, plan.stages, strict=True):
        kinds = types[start : start + len(strategies)]
        start += len(strategies)
        times = [layer_time(job, k, s, m) for k, s in zip(kinds, strategies, strict=True)]
        added = _changes_s(job, kinds, strategies, m)
        plain, reduce = sum(t.plain_s for t in times), sum(t.reduce_s for t in times)
        without.append(StageTime(plain + own, reduce - own))
        with_changes.append(StageTime(plain + added + own, reduce - own))
        changes += added
    work, exposed = _parts(with_changes, m)
    plain_step = sum(_parts(without, m)) if changes else work + exposed
    return Price(
        step_s=work + exposed,
        work_s=work,
        exposed_s=exposed,
        change_s=work + exposed - plain_step,
        used_mb=used_mb(job, plan),
    )


def _parts(stages: Sequence[StageTime], microbatches: int) -> tuple[float, float]:
    times = [stage.plain_s for stage in stages]
    return work_seconds(times, microbatches), exposed_seconds(stages)


def _changes_s(
    job: GalvatronJob,
    kinds: Sequence[int],
    strategies: Sequence[GalvatronStrategy],
    microbatches: int,
) -> float:
    stages = strategies[0].pp
    return sum(
        change_seconds(job, kind, before.degree, after.degree, stages, microbatches)
        for kind, (before, after) in zip(kinds[1:], pairwise(strategies), strict=True)
    )


def used_mb(job: GalvatronJob, plan: GalvatronPlan) -> tuple[int, ...]:
    """Whole MB of each stage, each layer rounded up, without what a budget withholds."""
    m, p = plan.microbatches, len(plan.division)
    types = [kind for kind, count in enumerate(job.layers) for _ in range(count)]
    least = least_buffer_degree(job, m, p)
    buffer = job.buffer_mb(m, p, max(plan.buffer_degree, least)) if plan.buffer_degree else 0
    found, start = [], 0
    ends = ends_memory(job, plan.ends, m)
    for stage, strategies in enumerate(plan.stages):
        kinds = types[start : start + len(strategies)]
        start += len(strategies)
        layers = zip(kinds, strategies, strict=True)
        whole = sum(layer_memory(job, k, s, m, stage).whole_mb for k, s in layers)
        found.append(whole + ends[stage].whole_mb + buffer)
    return tuple(found)
