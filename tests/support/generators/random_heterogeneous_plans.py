"""Seeded random legal plans over several device groups."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from generators.random_plans import Draft, nearest
from oracles.brute_force import Pipeline, Space, _pipeline_allowed, _places
from oracles.heterogeneous_oracle import Held, _build, _choices, _with_shares, arrangements

from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.stage_order import ALL_KINDS, V_KINDS
from shardwright.spec.strategy import LayerStrategy


@dataclass(frozen=True, kw_only=True)
class MixedDraft(Draft):
    """A plan over several device groups in parts; its pipeline has no width of its own."""

    held: tuple[Held, ...]

    def plan(self, space: Space) -> Plan:
        samples = space.workload.global_batch // self.pipeline.microbatches
        return _build(space, self.pipeline, self.held, self.boundaries, self.strategies, samples)

    def stages(self) -> tuple[int, ...]:
        """The stage of every layer."""
        at = {place: s for s in range(len(self.held)) for place in _places(self.pipeline, s)}
        sizes = (b - a for a, b in pairwise(self.boundaries))
        return tuple(at[place] for place, size in enumerate(sizes) for _ in range(size))

    def widths(self) -> tuple[int, ...]:
        each = [sum(part.count for part in stage) for stage in self.held]
        return tuple(each[stage] for stage in self.stages())

    def devices(self) -> str:
        return " > ".join(
            "+".join(
                f"{part.count} {part.device_group}"
                + ("" if part.batch_share is None else f" ({part.batch_share:.1%})")
                for part in stage
            )
            for stage in self.held
        )


@dataclass
class MixedDrawer:
    """Draws plans of a space; half of them share every stage between device groups."""

    space: Space
    source: random.Random
    _known: dict[object, list[LayerStrategy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = list(arrangements(self.space))
        self._blocks = [held for held in every if len(held[0]) == 1]
        self._shared = [held for held in every if len(held[0]) > 1]

    def draft(self) -> MixedDraft:
        """A random legal plan; for ever where the space has none."""
        while True:
            found = self.tried()
            if found is not None:
                return found

    def tried(self) -> MixedDraft | None:
        """A random legal plan; None where what was drawn is none."""
        found = self._try()
        return found if found is not None and not found.plan(self.space).check() else None

    def _try(self) -> MixedDraft | None:
        batch, layers = self.space.workload.global_batch, self.space.model.layers()
        some = self._shared if self.source.random() < 0.5 and self._shared else self._blocks
        bare = self.source.choice(some or self._shared)
        count = self.source.choice([m for m in range(1, batch + 1) if batch % m == 0])
        given = list(_with_shares(bare, batch // count))
        kind = self.source.choice(ALL_KINDS if len(bare) > 1 else ("1f1b", "gpipe"))
        most = max(2, min(4, len(layers) // len(bare)))
        chunks = 2 if kind in V_KINDS else 1
        if kind == "interleaved":
            chunks = self.source.randint(2, most)
        pipeline = Pipeline(stages=len(bare), width=0, kind=kind, chunks=chunks, microbatches=count)
        if not given or not _pipeline_allowed(self.space, pipeline, len(layers)):
            return None
        held = self.source.choice(given)
        parts = len(held) * chunks
        boundaries = (0, *sorted(self.source.sample(range(1, len(layers)), parts - 1)), len(layers))
        strategies = self._strategies(pipeline, held, boundaries, batch // count)
        if strategies is None:
            return None
        return MixedDraft(
            pipeline=pipeline, held=held, boundaries=boundaries, strategies=strategies
        )

    def _strategies(
        self, pipeline: Pipeline, held: tuple[Held, ...], boundaries: tuple[int, ...], samples: int
    ) -> tuple[LayerStrategy, ...] | None:
        found: list[LayerStrategy] = []
        wild = self.source.choice([0.0, 0.2, 1.0])
        stage_of = {place: s for s in range(len(held)) for place in _places(pipeline, s)}
        for number, layer in enumerate(self.space.model.layers()):
            position = sum(cut <= number for cut in boundaries[1:-1])
            own = held[stage_of[position]]
            key = (number, tuple((p.count, p.batch_share) for p in own), samples)
            if key not in self._known:
                self._known[key] = _choices(self.space, own, samples, number, layer)
            options = self._known[key]
            if not options:
                return None
            free = not found or self.source.random() < wild
            found.append(self.source.choice(options) if free else nearest(options, found[-1]))
        if self.space.model.tie_embeddings:
            found[-1] = found[0]
        return tuple(found)
