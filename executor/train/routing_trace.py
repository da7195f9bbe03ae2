"""Routing traces: rows that every expert of each layer got in each step, summed over ranks.

A rank counts what its gates choose in its forward passes, not once more where a block is
recomputed. Ranks of tensor parallelism that share their tokens choose alike, and one counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from ...spec.files import write_atomically
from ...spec.inputs.routing_trace import RoutingRow, require_experts, trace_text
from ...spec.model.feed_forward import Moe
from ..engine.engine import Engine
from ..launch.consistency import gather_json
from ..models.block import Block

Counts = list[tuple[int, int, list[int]]]
"""Step, layer, and rows of each expert."""


class RoutingTrace:
    """Counts of this rank's steps; without a ``path`` nothing is counted.

    Raises:
        InputError: a path, and a model without experts.
    """

    def __init__(self, engine: Engine, path: str | None) -> None:
        self._path, self._device = path, engine.options.device
        self._step: dict[int, Tensor] = {}
        self._counts: list[tuple[int, int, Tensor]] = []
        self._blocks: list[Block] = []
        if path is None:
            return
        require_experts(engine.plan.model, path)
        for chunk in engine.chunks:
            for key, module in chunk.layers.items():
                for block in module.modules():
                    if isinstance(block, Block) and isinstance(block.mlp, Moe):
                        self._follow(int(key), block)

    def _follow(self, layer: int, block: Block) -> None:
        if not block.expert_ranks.exchanges_rows and block.tp.rank:
            return

        def routed(offsets: Tensor) -> None:
            counts = offsets.diff(prepend=offsets.new_zeros(1)).long()
            before = self._step.get(layer)
            self._step[layer] = counts if before is None else before + counts

        block.routed = torch.compiler.disable(routed)  # type: ignore[no-untyped-call]
        self._blocks.append(block)

    def end_step(self, number: int) -> None:
        """Keep the counts of a step."""
        self._counts += [(number, layer, counts) for layer, counts in self._step.items()]
        self._step = {}

    def write(self) -> None:
        """Stop counting; rank 0 writes the trace of all ranks. Collective if there is a path."""
        for block in self._blocks:
            block.routed = None
        if self._path is None:
            return
        own = [(step, layer, counts.tolist()) for step, layer, counts in self._counts]
        ranks: list[Counts] = gather_json(own, self._device)
        if torch.distributed.get_rank() == 0:
            write_atomically(Path(self._path), trace_text(_rows(ranks)))


def _rows(ranks: list[Counts]) -> list[RoutingRow]:
    tokens: Counter[tuple[int, int, int]] = Counter()
    for counts in ranks:
        for step, layer, by_expert in counts:
            for expert, count in enumerate(by_expert):
                tokens[step, layer, expert] += count
    return [RoutingRow(*place, tokens[place]) for place in sorted(tokens)]
