"""The table of a plan's stages, as plain rows of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from ...spec.model.model_spec import BlockLayer
from ...spec.parallel.batch_partition import batch_share
from ...spec.plan.plan import Plan, Stage, StageDevices
from ...spec.plan.shape_text import expert_text
from ...spec.recomputation import recompute_rank
from ...spec.report.report import MemoryRow, Prediction
from ...spec.strategy import LayerStrategy

HEAD_ROWS, TAIL_ROWS = 16, 3
"""A table with more rows than these two and one shows its begin and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """Equally split layers of one stage; ``memory`` beside devices only."""

    stage: str
    layers: str
    devices: str
    tp: str
    dp: str
    shard: str
    recompute: str
    memory: MemoryRow | None = None


@dataclass(slots=True)
class _SplitGroup:
    strategy: LayerStrategy
    numbers: list[int]
    recomputes: list[str]


def stage_rows(plan: Plan, prediction: Prediction) -> list[StageRow]:
    """List one row per split of a stage and device group."""
    memory = {(row.stage, row.device_group): row for row in prediction.memory if row.tier == "hbm"}
    rows = []
    for number, stage in enumerate(plan.program.stages):
        groups = zip_longest(_split_groups(plan, stage), stage.devices)
        for line, (group, part) in enumerate(groups):
            split = ["", "", "", "", ""] if group is None else _splits(group, stage.device_count)
            rows.append(
                StageRow(
                    stage="" if line else str(number),
                    layers=split[0],
                    devices="" if part is None else _devices(plan, stage, part),
                    tp=split[1],
                    dp=split[2],
                    shard=split[3],
                    recompute=split[4],
                    memory=None if part is None else memory.get((number, part.device_group)),
                )
            )
    return rows


def _splits(group: _SplitGroup, ranks: int) -> list[str]:
    strategy = group.strategy
    return [
        ranges(group.numbers),
        split_text(strategy),
        str(strategy.data_parallel(ranks)),
        strategy.shard.level_name(strategy.state_ranks(ranks)),
        _recompute(group.recomputes),
    ]


def split_text(strategy: LayerStrategy) -> str:
    """Format a split: ``4 + sp``, ``8 ulysses`` or ``1, ep 8``."""
    split = " + sp" if strategy.megatron_sp else " ulysses" if strategy.ulysses else ""
    ring = f" x cp {strategy.cp}" if strategy.cp > 1 else ""
    experts = f", {expert_text(strategy)}" if (strategy.ep, strategy.etp) != (1, 1) else ""
    return f"{strategy.tp}{split}{ring}{experts}"


def _split_groups(plan: Plan, stage: Stage) -> list[_SplitGroup]:
    by_split: dict[tuple[object, ...], _SplitGroup] = {}
    for parts in stage.virtual_stages:
        for number, layer, strategy in plan.chunk_layers(parts):
            key = (strategy.layout, strategy.ulysses, strategy.ep, strategy.etp, strategy.shard)
            entry = by_split.setdefault(key, _SplitGroup(strategy, [], []))
            entry.numbers.append(number)
            if isinstance(layer, BlockLayer):
                entry.recomputes.append(strategy.recompute)
    return list(by_split.values())


def _recompute(recomputes: list[str]) -> str:
    """``none``, ``full``, or ``full 6 of 20`` where layers differ."""
    used = {kind: recomputes.count(kind) for kind in sorted({*recomputes}, key=recompute_rank)}
    if not used:
        return "-"
    if len(used) == 1:
        return next(iter(used))
    counts = [f"{kind} {n}" for kind, n in used.items() if kind != "none"]
    return " + ".join(counts) + f" of {len(recomputes)}"


def _devices(plan: Plan, stage: Stage, part: StageDevices) -> str:
    """Format devices: ``0-7``, or ``h100 0-7``, with a share if shared."""
    name = f"{part.device_group} " if len(plan.cluster.groups) > 1 else ""
    where = name + span(part.first_rank, part.first_rank + part.count - 1)
    if len(stage.devices) == 1:
        return where
    return f"{where}: {batch_share(stage, part) * 100:.4g} % of the batch"


def span(first: int, last: int) -> str:
    """``0-7``, or ``3`` where first and last are the same."""
    return str(first) if first == last else f"{first}-{last}"


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as runs: ``0-3, 8-11``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(span(first, last) for first, last in runs)


def shortened(rows: list[StageRow]) -> tuple[list[StageRow], list[StageRow], int]:
    """Split rows into the first, the last, and a count between."""
    if len(rows) <= HEAD_ROWS + TAIL_ROWS + 1:
        return rows, [], 0
    return rows[:HEAD_ROWS], rows[-TAIL_ROWS:], len(rows) - HEAD_ROWS - TAIL_ROWS
