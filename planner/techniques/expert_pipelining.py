"""Chunks of experts' rows: the best numbers for each direction, counted out at every place.

A forward depends on its own number alone, and so does a backward, but for the copies where the two
differ; so twelve passes of each exchange are priced, and the sixteen pairs from them. More chunks
than the quickest hold less while they are on their way, and the quickest forward is not always
that of the quickest pair, so every pair stands that no other one, or rows in line, is as good as
in the seconds and bytes of both passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from ...datasets.catalogue.device import CPU
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.technique_values import technique_stack_violation, technique_violation
from ...spec.techniques.expert_pipelining import COUNTS, NAME, ExpertPipelining
from ...spec.techniques.expert_pipelining import TECHNIQUE as VALUE
from ..technique import Place, TechniqueChoice

MOST_SLOWER = 1.05
"""Times the quickest that a value may take for the bytes it saves."""
ONE_NODE = "cores of one machine copy rows themselves, so that no exchange runs beside a product"


class _Pass(NamedTuple):
    """A micro-batch one way: seconds, and bytes over those at its start."""

    time_s: float
    peak_bytes: int
    change_bytes: int


class _Cost(NamedTuple):
    """Seconds of a micro-batch each way, and bytes over those before its forward.

    ``kept_bytes`` after the forward, ``left_bytes`` after the backward.
    """

    forward_s: float
    backward_s: float
    forward_peak_bytes: int
    kept_bytes: int
    backward_peak_bytes: int
    left_bytes: int

    @property
    def both_s(self) -> float:
        """Seconds of both ways."""
        return self.forward_s + self.backward_s

    def is_covered(self, other: _Cost) -> bool:
        """True if another is as good in everything."""
        return all(theirs <= own for own, theirs in zip(self, other, strict=True))


def cluster_violation(cluster: ClusterSpec) -> str | None:
    """Reason to try nothing: cores of one machine."""
    (first, *others) = cluster.groups
    one_node = not others and first.device == CPU and first.nodes == 1
    return ONE_NODE if one_node else None


def tried(place: Place) -> Iterable[ExpertPipelining]:
    """The values here that no other is as good as, the quickest last."""
    if place.strategy.ep == 1:
        return ()
    nodes = place.simulator.pricer.machine.cluster.groups[0].devices_per_node
    flat, node = ExpertPipelining(), ExpertPipelining(exchange="hierarchical", node_ranks=nodes)
    plain = _cost(*_passes(place, None))
    costs = [pair for usual in (flat, node) if _is_legal(place, usual)
             for pair in _pairs(place, usual)]  # fmt: skip
    costs.sort(key=lambda pair: (pair[0].both_s, pair[0]))
    most_s = MOST_SLOWER * min(plain.both_s, costs[0][0].both_s if costs else plain.both_s)
    kept = list[tuple[_Cost, ExpertPipelining]]()
    for cost, value in costs:
        others = (plain, *(one for one, _ in kept))
        if cost.both_s <= most_s and not any(map(cost.is_covered, others)):
            kept.append((cost, value))
    return [value for _, value in reversed(kept)]


def _is_legal(place: Place, value: ExpertPipelining) -> bool:
    strategy = place.with_value(NAME, value)
    dtype, stack = place.workload.dtype, place.simulator.lowering.stack
    illegal = technique_violation(place.layer, strategy, place.ranks, dtype, (VALUE,))
    return not (illegal or technique_stack_violation(strategy, stack, (VALUE,)))


def _pairs(place: Place, usual: ExpertPipelining) -> Iterable[tuple[_Cost, ExpertPipelining]]:
    """Pairs of counts with their costs; unlike ones copy the same, whichever they are."""
    same = {n: _passes(place, replace(usual, forward=n, backward=n)) for n in COUNTS}
    unlike = {n: _passes(place, replace(usual, forward=2 if n == 1 else 1, backward=n))[1]
              for n in COUNTS}  # fmt: skip
    for forward, backward in product(COUNTS, repeat=2):
        if usual.exchange == "flat" and forward == backward == 1:
            continue
        back = same[backward][1] if forward == backward else unlike[backward]
        yield (
            _cost(same[forward][0], back),
            replace(usual, forward=forward, backward=backward),
        )


def _cost(forward: _Pass, backward: _Pass) -> _Cost:
    kept_bytes = forward.change_bytes
    return _Cost(
        forward_s=forward.time_s,
        backward_s=backward.time_s,
        forward_peak_bytes=forward.peak_bytes,
        kept_bytes=kept_bytes,
        backward_peak_bytes=kept_bytes + backward.peak_bytes,
        left_bytes=kept_bytes + backward.change_bytes,
    )


def _passes(place: Place, value: ExpertPipelining | None) -> tuple[_Pass, _Pass]:
    """A micro-batch through the layer, forward and backward."""
    simulator = place.simulator
    strategy = place.strategy if value is None else place.with_value(NAME, value)
    lowered = simulator.lowering.layer(place.index, strategy, None, strategy.width, place.samples)
    machine = simulator.pricer.machine
    pricer = simulator.pricer.with_link_span(machine.link_span_of(place.ranks, place.ranks))
    forward, backward = (
        _Pass(pricer.layer_pass(one).time_s, one.peak_bytes, one.change_bytes)
        for one in (lowered.forward, lowered.backward)
    )
    return forward, backward


TECHNIQUE = TechniqueChoice(
    name=NAME, tried=tried, cluster_violation=cluster_violation, prices_places=True
)
