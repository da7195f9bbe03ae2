"""Cost of one whole plan under Galvatron's semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from .embedding_head import embedding_head_memory, embedding_head_seconds
from .job import MB, GalvatronJob
from .layer_memory import layer_memory
from .layer_time import layer_time
from .pipeline import StageTime, exposed_seconds, work_seconds
from .reshard import reshard_seconds
from .strategy import GalvatronStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronPlan:
    """Every decision of Galvatron's.

    ``layers``: strategy of each layer between embedding and head; ``ends``: theirs; ``division``:
    number of layers of each stage.
    """

    layers: tuple[GalvatronStrategy, ...]
    ends: GalvatronStrategy
    microbatches: int
    division: tuple[int, ...]

    @property
    def stages(self) -> list[tuple[GalvatronStrategy, ...]]:
        """Strategies of each stage's layers."""
        cuts = accumulate(self.division, initial=0)
        return [self.layers[a:b] for a, b in pairwise(cuts)]

    def kinds(self, job: GalvatronJob) -> list[tuple[int, ...]]:
        """Types of each stage's layers."""
        types = tuple(kind for kind, count in enumerate(job.layers) for _ in range(count))
        cuts = accumulate(self.division, initial=0)
        return [types[a:b] for a, b in pairwise(cuts)]

    def stage_reshards_s(self, job: GalvatronJob, stage: int) -> float:
        """Seconds per micro-batch of changes of degree inside a stage."""
        neighbors = zip(self.kinds(job)[stage][1:], pairwise(self.stages[stage]), strict=True)
        count, m = len(self.division), self.microbatches
        return sum(
            reshard_seconds(job, kind, before.degree, after.degree, count, m)
            for kind, (before, after) in neighbors
        )

    def buffer_mb(self, job: GalvatronJob) -> int:
        """MB of the plan's largest-degree buffer; 0 without tensor parallelism."""
        strategies = (*self.layers, self.ends)
        if not any(strategy.tp > 1 for strategy in strategies):
            return 0
        m, p = self.microbatches, len(self.division)
        degree = max(least_buffer_degree(job, m, p), *(s.degree for s in strategies))
        return job.buffer_mb(m, p, degree)


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronCost:
    """Seconds of a step by part, and whole MB by stage.

    ``step_s``: total; ``reshard_s``: the part added by changes of degree.
    """

    step_s: float
    work_s: float
    exposed_s: float
    reshard_s: float
    used_bytes: tuple[int, ...]


def even_division(layers: int, stages: int) -> tuple[int, ...]:
    """Galvatron's split of layers over stages; the last takes the rest."""
    per_stage = layers // stages
    return (per_stage,) * (stages - 1) + (layers - per_stage * (stages - 1),)


def least_buffer_degree(job: GalvatronJob, microbatches: int, stages: int) -> int:
    """The smallest degree with a sample for every replica."""
    ranks = job.devices // stages
    return max(1, ranks // max(1, min(job.global_batch // microbatches, ranks)))


def plan_cost(job: GalvatronJob, plan: GalvatronPlan) -> GalvatronCost:
    """The cost of a plan.

    Raises:
        InputError: the profile lacks a figure that it needs.
    """
    m = plan.microbatches
    ends_s = embedding_head_seconds(job, plan.ends, m)
    with_reshards, without_reshards = [], []
    for stage, (kinds, strategies) in enumerate(zip(plan.kinds(job), plan.stages, strict=True)):
        times = [layer_time(job, k, s, m) for k, s in zip(kinds, strategies, strict=True)]
        end_s, reshard_s = ends_s[stage], plan.stage_reshards_s(job, stage)
        plain, reduce = sum(t.plain_s for t in times), sum(t.reduce_s for t in times)
        without_reshards.append(StageTime(plain + end_s, reduce - end_s))
        with_reshards.append(StageTime(plain + reshard_s + end_s, reduce - end_s))
    work, exposed = _parts(with_reshards, m)
    return GalvatronCost(
        step_s=work + exposed,
        work_s=work,
        exposed_s=exposed,
        reshard_s=work + exposed - sum(_parts(without_reshards, m)),
        used_bytes=tuple(mb * MB for mb in used_mb(job, plan)),
    )


def _parts(stages: Sequence[StageTime], microbatches: int) -> tuple[float, float]:
    times = [stage.plain_s for stage in stages]
    return work_seconds(times, microbatches), exposed_seconds(stages)


def used_mb(job: GalvatronJob, plan: GalvatronPlan) -> tuple[int, ...]:
    """Whole MB of each stage, rounded up by layer, nothing withheld."""
    m, buffer = plan.microbatches, plan.buffer_mb(job)
    ends = embedding_head_memory(job, plan.ends, m)
    return tuple(
        ends[stage].whole_mb
        + buffer
        + sum(layer_memory(job, k, s, m, stage).whole_mb for k, s in zip(*layers, strict=True))
        for stage, layers in enumerate(zip(plan.kinds(job), plan.stages, strict=True))
    )
