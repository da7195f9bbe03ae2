"""Seeded random legal plans in spaces of any size, and small random changes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from oracles.brute_force import Pipeline, Space, build, layer_choices

from shardwright.spec.plan.plan import Plan
from shardwright.spec.rules.plan_rules import schedule_violation, tied_embedding_violation
from shardwright.spec.schedules.stage_order import SCHEDULE_KINDS, V_KINDS, ScheduleKind
from shardwright.spec.strategy import LayerStrategy

Cuts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A plan in parts, which are easier to change than the document."""

    pipeline: Pipeline
    boundaries: Cuts
    strategies: tuple[LayerStrategy, ...]

    def plan(self, space: Space) -> Plan:
        return build(space, self.pipeline, self.boundaries, self.strategies)

    def widths(self) -> tuple[int, ...]:
        """Ranks of the stage of every layer."""
        return (self.pipeline.width,) * len(self.strategies)

    def devices(self) -> str:
        """The devices of its stages in words."""
        return f"{self.pipeline.stages} x {self.pipeline.width}"


@dataclass
class Drawer:
    """Draws plans of a space; legal strategies are looked up once a layout."""

    space: Space
    source: random.Random
    kinds: tuple[ScheduleKind, ...] = SCHEDULE_KINDS
    _choices: dict[tuple[int, int], list[list[LayerStrategy]]] = field(default_factory=dict)
    _kind_firsts: dict[int, int] = field(default_factory=dict)

    def choices(self, pipeline: Pipeline) -> list[list[LayerStrategy]]:
        key = (pipeline.width, pipeline.microbatches)
        if key not in self._choices:
            self._choices[key] = layer_choices(self.space, pipeline)
        return self._choices[key]

    def pipeline(self, idle: bool = True) -> Pipeline | None:
        """A random legal layout of devices and batch with strategies for every layer."""
        devices, layers = self.space.cluster.device_count, len(self.space.model.layers())
        batch = self.space.workload.global_batch
        stages = self.source.choice(
            [p for p in range(1, min(devices, layers) + 1) if idle or devices % p == 0]
        )
        widths = [w for w in range(1, devices // stages + 1) if idle or w * stages == devices]
        kind = self.source.choice(self.kinds)
        chunks = self.source.randint(2, max(2, min(6, layers // stages)))
        found = Pipeline(
            stages=stages,
            width=self.source.choice(widths[-3:] if idle else widths),
            kind=kind,
            chunks=chunks if kind == "interleaved" else 2 if kind in V_KINDS else 1,
            microbatches=self.source.choice([m for m in range(1, batch + 1) if batch % m == 0]),
        )
        if kind not in self.space.stack.schedules:
            return None
        reason = schedule_violation(
            kind, stages, found.chunks, found.microbatches, len(self.space.model.layers())
        )
        return found if reason is None and all(self.choices(found)) else None

    def draft(self, idle: bool = True) -> Draft:
        """A random plan: sometimes one strategy nearly everywhere, sometimes all at random."""
        while True:
            pipeline = self.pipeline(idle)
            if pipeline is None:
                continue
            strategies = self._strategies(self.choices(pipeline))
            if tied_embedding_violation(self.space.model, strategies) is None:
                boundaries = self.boundaries(pipeline.stages * pipeline.chunks)
                return Draft(pipeline=pipeline, boundaries=boundaries, strategies=strategies)

    def boundaries(self, parts: int) -> Cuts:
        """Random cut points, half of the time near the even ones."""
        layers = len(self.space.model.layers())
        if self.source.random() < 0.5:
            return (0, *sorted(self.source.sample(range(1, layers), parts - 1)), layers)
        return tuple(round(i * layers / parts) for i in range(parts + 1))

    def _strategies(self, choices: list[list[LayerStrategy]]) -> tuple[LayerStrategy, ...]:
        main = self.source.choice(choices[len(choices) // 2])
        wild = self.source.choice([0.0, 0.1, 1.0])
        found = []
        for options in choices:
            own = nearest(options, main)
            found.append(self.source.choice(options) if self.source.random() < wild else own)
        if self.space.model.tie_embeddings:
            found[-1] = found[0]
        return tuple(found)


def nearest(options: list[LayerStrategy], wanted: LayerStrategy) -> LayerStrategy:
    """The option that has most in common with ``wanted``."""
    return max(
        options,
        key=lambda s: (
            s.tp == wanted.tp,
            s.sequence_parallel == wanted.sequence_parallel,
            s.shard == wanted.shard,
            s.recompute == wanted.recompute,
        ),
    )


def capped(space: Space, reserved_bytes: int, margin: float) -> Space:
    """The space on devices that hold just this much."""
    return space.with_memory(int(reserved_bytes * margin) + 1)


def reshaped(draft: Draft, **fields: object) -> Draft:
    """The draft with another pipeline."""
    return replace(draft, pipeline=replace(draft.pipeline, **fields))  # type: ignore[arg-type]
