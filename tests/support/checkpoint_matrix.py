"""Plans of one model on any number of ranks, and what a run of one goes on to do under another."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from plan_cases import PLAIN, Case, Sizes, sharded

from shardwright.executor.launch import TRAIN_JOB
from shardwright.spec.plan import Plan
from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(blocks=6, hidden=48, heads=12, ffn=96, vocab=96, gpt2=True, tied=True)
KINDS = ("dp", "zero1", "zero3", "tp", "pp", "mixed")
SAVED_AT, LAST = 4, 8
SAME_BOUND = 1e-5

Run = Callable[[int, dict[str, Any]], dict[str, Any]]
"""``run(ranks, payload)``: the train job's result on rank 0."""


class Cell(NamedTuple):
    """A kind of plan on so many ranks."""

    kind: str
    ranks: int

    def __str__(self) -> str:
        """``zero3 on 4``."""
        return f"{self.kind} on {self.ranks}"

    def why_not(self) -> str | None:
        """Why there is no such plan; None where there is."""
        if self.kind == "tp" and SIZES.heads % self.ranks:
            return f"{SIZES.heads} heads cannot be split over {self.ranks} ranks"
        if self.ranks == 1 and self.kind != "dp":
            return "one rank has nothing to split"
        return None

    def plan(self) -> Plan:
        """The plan; every one trains the same model on the same samples."""
        return _case(self).plan()


def _case(cell: Cell) -> Case:
    kind, ranks = cell
    stages = {"pp": ranks, "mixed": 2 if ranks in (4, 8) else 1}.get(kind, 1)
    every: Any = PLAIN
    if kind in ("zero1", "zero3"):
        every = sharded(kind, ranks)
    elif kind == "tp":
        every = LayerStrategy(tp=ranks, sequence_parallel="megatron")
    elif kind == "mixed":
        every = _mixed(ranks // stages)
    return Case(
        name=str(cell),
        sizes=SIZES,
        ranks=ranks,
        stages=stages,
        strategies=every,
        global_batch=48,
        micro_batch=24,
        seq_len=24,
    )


def _mixed(width: int) -> list[LayerStrategy]:
    """Another strategy for each layer; both ends have one, for they share a weight."""
    blocks = [
        LayerStrategy(tp=width, sequence_parallel="megatron"),
        sharded("zero3", width, recompute="full"),
        sharded("zero1", width),
        LayerStrategy(tp=width, recompute="selective"),
        PLAIN,
        sharded("zero2", width),
    ]
    end = sharded("zero1", width)
    return [end, *blocks, end]


CELLS = tuple(Cell(kind, ranks) for ranks in (1, 2, 3, 4, 8) for kind in KINDS)
LEGAL = tuple(cell for cell in CELLS if cell.why_not() is None)


def others(cell: Cell, count: int, most_ranks: int = 8) -> list[Cell]:
    """Other cells to go on under, drawn by the cell's own seed."""
    rest = [other for other in LEGAL if other != cell and other.ranks <= most_ranks]
    return random.Random(str(cell)).sample(rest, count)


def payload(cell: Cell, steps: int, **checkpoint: Any) -> dict[str, Any]:
    """A train job of a cell."""
    return {
        "plan": cell.plan().to_document(),
        "steps": steps,
        "random_tokens": True,
        "follow_bytes": False,
        "checkpoint": checkpoint,
    }


class Saved(NamedTuple):
    """A run that saved once on its way: where, and its losses after that."""

    folder: Path
    losses: list[float]


def save(run: Run, cell: Cell, root: Path) -> Saved:
    """Run a cell to the end, with a checkpoint on the way and one at the end."""
    asked = payload(cell, LAST, folder=str(root), every=SAVED_AT)
    losses = run(cell.ranks, asked)["measured"]["losses"]
    return Saved(root / f"step-{SAVED_AT:08d}", losses[SAVED_AT:])


def resumed(run: Run, cell: Cell, saved: Saved) -> list[float]:
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
