"""How a layer's work may be split over the ranks of a stage.

Every legal degree is there, with two rules for axes that nobody named (in a pin, or as a list
of values). They keep searches of large clusters short, and reports list them:

- a ring or Ulysses leaves each rank at least ``LEAST_TOKENS`` tokens of the sequence, since
  what they save is activations of long sequences;
- experts are split like the layer's other weights or not at all (etp is tp or 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..spec.legality import layer_reason
from ..spec.model import Layer
from ..spec.strategy import LayerStrategy, Recompute, SequenceParallel
from ..spec.tensor_split import split_sizes
from .layer_axes import experts_of, recomputes_of
from .numbers import divisors
from .request import Request

LEAST_TOKENS = 4096


class Splits:
    """The splits of a request's layers, before any sharding.

    Args:
        request: what is asked.
    """

    def __init__(self, request: Request) -> None:
        self._seq_len = request.workload.seq_len
        self._batches = divisors(request.workload.global_batch)
        self._request = request

    def of(self, index: int, layer: Layer, ranks: int, dp: int) -> Iterator[LayerStrategy]:
        """Legal splits of layer ``index`` on ``ranks`` ranks into ``dp`` parts of the batch."""
        both, named = ranks // dp, self._named(index)
        for tp in divisors(both):
            cp = both // tp
            for sp in self._sequences(tp, cp, named):
                for ep, etp in self._expert_degrees(layer, ranks, tp, named):
                    split = LayerStrategy(tp=tp, sequence_parallel=sp, cp=cp, ep=ep, etp=etp)
                    if self._legal(layer, split, ranks, dp):
                        yield split

    def recomputes(self, layer: Layer, split: LayerStrategy, ranks: int) -> list[Recompute]:
        """What a layer may recompute under a legal split."""
        dp = split.data_parallel(ranks)
        return [
            recompute
            for recompute in recomputes_of(layer)
            if self._legal(layer, replace(split, recompute=recompute), ranks, dp)
        ]

    def _legal(self, layer: Layer, split: LayerStrategy, ranks: int, dp: int) -> bool:
        return layer_reason(layer, split, ranks, dp, self._seq_len) is None

    def _named(self, index: int | None = None) -> frozenset[str]:
        """Axes that a list of values or a pin on this layer (None: on any) speaks of."""
        pins = {p.key for p in self._request.pins if index is None or p.covers(index)}
        return frozenset(pins | set(self._request.values or ()))

    def _sequences(self, tp: int, cp: int, named: frozenset[str]) -> Iterator[SequenceParallel]:
        if "cp" in named or self._long_enough(cp):
            yield "none"
            if tp > 1:
                yield "megatron"
                if "sp" in named or self._long_enough(tp * cp):
                    yield "ulysses"

    def _long_enough(self, parts: int) -> bool:
        return parts == 1 or self._seq_len // parts >= LEAST_TOKENS

    def _expert_degrees(
        self, layer: Layer, ranks: int, tp: int, named: frozenset[str]
    ) -> Iterator[tuple[int, int]]:
        experts = experts_of(layer)
        if experts is None:
            yield 1, 1
            return
        for ep in divisors(math.gcd(experts.experts, ranks)):
            degrees = divisors(ranks // ep) if "etp" in named else sorted({1, tp})
            yield from ((ep, etp) for etp in degrees if (ranks // ep) % etp == 0)

    def widths(self, layers: tuple[Layer, ...], most: int) -> list[int]:
        """Stage widths that every layer can use: its splits times parts of the batch."""
        sizes = {tuple(split_sizes(layer).values()) for layer in layers}
        each = [self._widths_of(size, most) for size in sizes if size]
        return sorted(set.intersection(*each)) if each else self._plain_widths(most)

    def _widths_of(self, sizes: tuple[int, ...], most: int) -> set[int]:
        """Widths of a layer whose weights divide by what ``sizes`` share."""
        rings, named = self._rings(most), self._named()
        whole = divisors(math.gcd(*sizes))
        heads = [
            t for size in sizes for t in divisors(size) if "sp" in named or self._long_enough(t)
        ]
        degrees = {tp * cp for tp in {*whole, *heads} for cp in rings}
        return {n * dp for n in degrees for dp in self._batches if n * dp <= most}

    def _rings(self, most: int) -> list[int]:
        parts, named = divisors(self._seq_len), "cp" in self._named()
        return [cp for cp in parts if cp <= most and (named or self._long_enough(cp))]

    def _plain_widths(self, most: int) -> list[int]:
        widths = {cp * dp for cp in self._rings(most) for dp in self._batches}
        return sorted(width for width in widths if width <= most)
