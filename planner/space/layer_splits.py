"""Splits of a layer's work over the ranks of a stage.

Every legal degree, with three rules for axes without a pin or list of values. They keep searches
of large clusters short, and reports list them (rules on tokens hold unless a request is free of
them):

- a ring or Ulysses leaves each rank at least ``LEAST_TOKENS`` tokens of the sequence, since they
save activations of long sequences; ``LEAST_ADAPTED`` for adapters alone, with next to no gradients
to sum over ranks of equal weights, so that more ranks may work on a small batch;
- an expert is split only where every rank holds all of them: etp is 1, or tp where ep is 1;
- a replica's micro-batch has at most ``MOST_TOKENS`` tokens unless it is one sample: larger
products gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...spec.choices import Recompute, SequenceParallel
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import Layer
from ...spec.model.tensor_split import split_sizes
from ...spec.numbers import divisors
from ...spec.recomputation import SELECTIVE_OPS
from ...spec.rules.layer_rules import recomputes_of
from ...spec.rules.plan_rules import layer_violation
from ...spec.strategy import LayerStrategy
from ...spec.workload.workload import Workload
from .request import Request

LEAST_TOKENS, LEAST_ADAPTED = 4096, 1024
MOST_TOKENS = 2**17
FREE_OF_TOKENS = ("cp", "sp", "micro_batch")
"""Axes without rules where a request is free of the rules on tokens."""


class Splits:
    """Splits of a request's layers, before any sharding."""

    def __init__(self, request: Request, tokens: tuple[int, ...]) -> None:
        self._layers = request.model.layers()
        self._tokens = tokens
        self._batches = divisors(request.workload.global_batch)
        self._request = request
        self._least_tokens = least_tokens(request.workload)

    def of(self, index: int, ranks: int, dp: int) -> Iterator[LayerStrategy]:
        """Legal splits of a layer over ranks and batch parts."""
        both, named = ranks // dp, self._named(index)
        for tp in divisors(both):
            cp = both // tp
            for sp in self._sequences(tp, cp, named, self._tokens[index]):
                for ep, etp in self._expert_degrees(self._layers[index], ranks, tp, named):
                    split = LayerStrategy(tp=tp, sequence_parallel=sp, cp=cp, ep=ep, etp=etp)
                    if self.legal(index, split, ranks):
                        yield split

    def small_enough(self, index: int, samples: int) -> bool:
        """True if a replica may take so many samples through a layer."""
        named = samples == 1 or "micro_batch" in self._named()
        return named or samples * self._tokens[index] <= MOST_TOKENS

    def recomputes(self, index: int, split: LayerStrategy, ranks: int) -> list[Recompute]:
        """Legal recomputations of a layer under a legal split."""
        words = list(recomputes_of(self._layers[index]))
        if len(words) > 1:
            pins = (p for p in self._request.pins if p.key == "recompute" and p.covers(index))
            asked = [str(pin.value) for pin in pins]
            if SELECTIVE_OPS in self._request.stack.recompute:
                asked.append(SELECTIVE_OPS)
            words += [word for word in dict.fromkeys(asked) if word not in words]
        return [
            recompute
            for recompute in words
            if self.legal(index, replace(split, recompute=recompute), ranks)
        ]

    def legal(self, index: int, strategy: LayerStrategy, ranks: int) -> bool:
        """True if a layer's strategy is legal on so many ranks."""
        dp = strategy.data_parallel(ranks)
        violation = layer_violation(self._layers[index], strategy, ranks, dp, self._tokens[index])
        return violation is None

    def _named(self, index: int | None = None) -> frozenset[str]:
        pins = {p.key for p in self._request.pins if index is None or p.covers(index)}
        free = () if self._request.token_rules else FREE_OF_TOKENS
        return frozenset(pins.union(self._request.values or (), free))

    def _sequences(
        self, tp: int, cp: int, named: frozenset[str], tokens: int
    ) -> Iterator[SequenceParallel]:
        if "cp" in named or self._long_enough(tokens, cp):
            yield "none"
            if tp > 1:
                yield "megatron"
                if "sp" in named or self._long_enough(tokens, tp * cp):
                    yield "ulysses"

    @staticmethod
    def _expert_degrees(
        layer: Layer, ranks: int, tp: int, named: frozenset[str]
    ) -> Iterator[tuple[int, int]]:
        experts = experts_of(layer)
        if experts is None:
            yield 1, 1
            return
        for ep in divisors(math.gcd(experts.experts, ranks)):
            degrees = divisors(ranks // ep) if "etp" in named else {1} if ep > 1 else {1, tp}
            yield from ((ep, etp) for etp in sorted(degrees) if (ranks // ep) % etp == 0)

    def widths(self, most: int) -> list[int]:
        """Usable stage widths up to ``most``: splits times parts of the batch."""
        distinct = {
            (tuple(split_sizes(layer).values()), tokens)
            for layer, tokens in zip(self._layers, self._tokens, strict=True)
        }
        widths = [self._widths_of(sizes, tokens, most) for sizes, tokens in distinct if sizes]
        return sorted(set.intersection(*widths)) if widths else list(range(1, most + 1))

    def degrees(self, index: int, most: int) -> list[int]:
        """Possible ranks of a layer's work on one sample, up to ``most``."""
        sizes = tuple(split_sizes(self._layers[index]).values())
        if not sizes:
            return list(range(1, most + 1))
        degrees = self._degrees_of(sizes, self._tokens[index], most)
        return sorted(degree for degree in degrees if degree <= most)

    def _widths_of(self, sizes: tuple[int, ...], tokens: int, most: int) -> set[int]:
        """Widths of a layer divisible by common divisors of ``sizes``."""
        degrees = self._degrees_of(sizes, tokens, most)
        return {n * dp for n in degrees for dp in self._batches if n * dp <= most}

    def _degrees_of(self, sizes: tuple[int, ...], tokens: int, most: int) -> set[int]:
        """Possible ranks of a layer of these sizes on one sample."""
        named = self._named()
        rings = [
            cp
            for cp in divisors(tokens)
            if cp <= most and ("cp" in named or self._long_enough(tokens, cp))
        ]
        heads = [
            t
            for size in sizes
            for t in divisors(size)
            if "sp" in named or self._long_enough(tokens, t)
        ]
        return {tp * cp for tp in {*divisors(math.gcd(*sizes)), *heads} for cp in rings}

    def _long_enough(self, tokens: int, parts: int) -> bool:
        return parts == 1 or tokens // parts >= self._least_tokens


def least_tokens(workload: Workload) -> int:
    """Minimum tokens of a rank under a ring or Ulysses, without pins."""
    return LEAST_TOKENS if workload.adapters is None else LEAST_ADAPTED
