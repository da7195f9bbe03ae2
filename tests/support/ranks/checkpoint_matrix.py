"""Plans of two models on any number of ranks, and what a run of one does under another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from generators.family_cases import FamilyCase, tower
from generators.plan_cases import PLAIN, Sizes, sharded

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.feed_forward import Mlp, Moe
from shardwright.spec.model.layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.relative_position_bias import table_blocks
from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(blocks=6, hidden=48, heads=12, ffn=96, vocab=96, gpt2=True, tied=True)
KINDS = ("dp", "zero1", "zero3", "tp", "pp", "ep", "mixed")
SAVED_AT, LAST = 4, 8
SAME_BOUND = 1e-5

Run = Callable[[int, dict[str, Any]], dict[str, Any]]
"""``run(ranks, payload)``: the train job's result on rank 0."""


def expert_model() -> ModelSpec:
    """A decoder of 12 heads with one dense block, and five of 24 experts and a shared one."""
    attention = Attention(heads=12, kv_heads=12, head_dim=4)
    moe = Moe(experts=24, topk=2, ffn=24, shared_ffn=24)
    dense = BlockLayer(hidden=48, attention=attention, mlp=Mlp(ffn=96))
    ends = EmbeddingLayer(vocab=96, hidden=48), HeadLayer(hidden=48, vocab=96)
    layers = (ends[0], dense, *[replace(dense, mlp=moe)] * 5, ends[1])
    return ModelSpec(name="experts", towers=(tower("text", *layers),))


DENSE, EXPERTS = SIZES.model(), expert_model()


class Cell(NamedTuple):
    """A kind of plan on so many ranks; ``ep`` is of a model with experts, as others may be."""

    kind: str
    ranks: int
    experts: bool = False

    def __str__(self) -> str:
        """``zero3 on 4``."""
        of = " of experts" if self.experts and self.kind != "ep" else ""
        return f"{self.kind}{of} on {self.ranks}"

    @property
    def model(self) -> ModelSpec:
        """What it trains."""
        return EXPERTS if self.experts else DENSE

    def why_not(self) -> str | None:
        """Why there is no such plan; None where there is."""
        if self.kind == "tp" and SIZES.heads % self.ranks:
            return f"{SIZES.heads} heads cannot be split over {self.ranks} ranks"
        if self.ranks == 1 and self.kind != "dp":
            return "one rank has nothing to split"
        return None

    def plan(self) -> Plan:
        """The plan; all of one model train it on the same samples."""
        kind, ranks = self.kind, self.ranks
        stages = {"pp": ranks, "mixed": 2 if ranks in (4, 8) else 1}.get(kind, 1)
        width, layers = ranks // stages, self.model.layers()
        strategies = [
            _where_it_fits(layer, given)
            for layer, given in zip(layers, _strategies(kind, width), strict=True)
        ]
        case = FamilyCase(
            name=str(self),
            model=self.model,
            ranks=ranks,
            stages=stages,
            boundaries=tuple(round(i * len(layers) / stages) for i in range(1, stages)),
            strategies=strategies,
            global_batch=48,
            micro_batch=24,
            seq_len=24,
        )
        return case.plan()


def _strategies(kind: str, width: int) -> list[LayerStrategy]:
    """One for each of the eight layers of a stage this wide."""
    every: LayerStrategy = PLAIN
    if kind == "mixed":
        return _mixed(width)
    if kind == "ep":
        return _experts(width)
    if kind in ("zero1", "zero3"):
        every = sharded(kind, width)
    elif kind == "tp":
        every = LayerStrategy(tp=width, sequence_parallel="megatron")
    return [every] * 8


def _mixed(width: int) -> list[LayerStrategy]:
    """Another strategy for each layer; both ends have one, for they share a weight."""
    blocks = [
        LayerStrategy(tp=width, sequence_parallel="megatron"),
        sharded("zero3", width, recompute="full"),
        sharded("zero1", width),
        LayerStrategy(tp=width, recompute="selective", etp=width),
        replace(PLAIN, ep=width),
        sharded("zero2", width),
    ]
    end = sharded("zero1", width)
    return [end, *blocks, end]


def _experts(width: int) -> list[LayerStrategy]:
    """Experts apart, cut, or both; whole or sharded with the rest of their layers."""
    half = 2 if width % 2 == 0 else 1
    end = sharded("zero1", width)
    return [
        end,
        sharded("zero3", width),
        replace(PLAIN, ep=width),
        sharded("zero3", width, ep=width // half, etp=half),
        replace(PLAIN, etp=width, recompute="full"),
        sharded("zero1", width, etp=half),
        sharded("zero3", width, ep=half),
        end,
    ]


def _where_it_fits(layer: Layer, strategy: LayerStrategy) -> LayerStrategy:
    """The strategy as a layer can have it: only experts have degrees of their own."""
    if experts_of(layer) is None:
        return replace(strategy, ep=1, etp=1)
    return strategy


CELLS = tuple(Cell(kind, ranks, kind == "ep") for ranks in (1, 2, 3, 4, 8) for kind in KINDS)
LEGAL = tuple(cell for cell in CELLS if cell.why_not() is None)
WITH_EXPERTS = tuple(
    cell for cell in (c._replace(experts=True) for c in CELLS) if cell.why_not() is None
)


def others(cell: Cell, count: int, most_ranks: int = 8) -> list[Cell]:
    """Other cells of the same model to go on under, drawn by the cell's own seed."""
    every = WITH_EXPERTS if cell.experts else [c for c in LEGAL if not c.experts]
    rest = [other for other in every if other != cell and other.ranks <= most_ranks]
    return random.Random(str(cell)).sample(rest, count)


class Planned(Protocol):
    """A plan in short: a cell, or a case of any family."""

    @property
    def ranks(self) -> int:
        """How many it runs on."""

    def plan(self) -> Plan:
        """The plan."""


def payload(cell: Planned, steps: int, **checkpoint: Any) -> dict[str, Any]:
    """A train job of a cell."""
    plan = cell.plan()
    return {
        "plan": plan.to_document(),
        "attention": "unfused" if table_blocks(plan.model) else "flash",
        "steps": steps,
        "random_tokens": True,
        "follow_bytes": False,
        "checkpoint": checkpoint,
    }


class Saved(NamedTuple):
    """A run that saved once on its way: where, and its losses after that."""

    folder: Path
    losses: list[float]


def save(run: Run, cell: Planned, root: Path) -> Saved:
    """Run a cell to the end, with a checkpoint on the way and one at the end."""
    asked = payload(cell, LAST, folder=str(root), every=SAVED_AT)
    losses = run(cell.ranks, asked)["measured"]["losses"]
    return Saved(root / f"step-{SAVED_AT:08d}", losses[SAVED_AT:])


def resumed(run: Run, cell: Planned, saved: Saved) -> list[float]:
    """The losses of a run of a cell that goes on from a checkpoint."""
    result = run(cell.ranks, payload(cell, LAST, resume=str(saved.folder)))
    assert result["checkpoint"]["resumed"]["step"] == SAVED_AT
    losses: list[float] = result["measured"]["losses"]
    return losses


def apart(losses: list[float], expected: list[float]) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def run_on(pools: dict[int, Any]) -> Run:
    """Runs on pools of ranks."""

    def run(ranks: int, asked: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = pools[ranks].run(TRAIN_JOB, asked)[0]
        return found

    return run
