"""Chunks of experts' rows: the best number for each direction, counted out at every place.

A forward depends on its own number alone, and so does a backward, but for the copies where the two
differ; so twelve passes are priced, and the sixteen pairs by their sums. Of flat and hierarchical
exchange the quicker stands; one that is no quicker than rows in line is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

from ...datasets.catalogue.device import CPU
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.technique_values import technique_stack_violation, technique_violation
from ...spec.techniques.expert_pipelining import COUNTS, NAME, ExpertPipelining
from ...spec.techniques.expert_pipelining import TECHNIQUE as VALUE
from ..technique import Place, TechniqueChoice

ONE_NODE = "cores of one machine copy rows themselves, so that no exchange runs beside a product"


def cluster_violation(cluster: ClusterSpec) -> str | None:
    """Reason to try nothing: cores of one machine."""
    (first, *others) = cluster.groups
    one_node = not others and first.device == CPU and first.nodes == 1
    return ONE_NODE if one_node else None


def tried(place: Place) -> Iterable[ExpertPipelining]:
    """The quickest value here, if it is quicker than none."""
    if place.strategy.ep == 1:
        return ()
    nodes = place.simulator.pricer.machine.cluster.groups[0].devices_per_node
    flat, node = ExpertPipelining(), ExpertPipelining(exchange="hierarchical", node_ranks=nodes)
    quickest_s, quickest = sum(_both(place, None)), None
    for usual in (flat, node):
        if not _is_legal(place, usual):
            continue
        for seconds, value in _pairs(place, usual):
            if seconds < quickest_s:
                quickest_s, quickest = seconds, value
    return () if quickest is None else (quickest,)


def _is_legal(place: Place, value: ExpertPipelining) -> bool:
    strategy = place.with_value(NAME, value)
    dtype, stack = place.workload.dtype, place.simulator.lowering.stack
    illegal = technique_violation(place.layer, strategy, place.ranks, dtype, (VALUE,))
    return not (illegal or technique_stack_violation(strategy, stack, (VALUE,)))


def _pairs(place: Place, usual: ExpertPipelining) -> Iterable[tuple[float, ExpertPipelining]]:
    """Pairs of counts with their seconds; unlike ones copy the same, whichever they are."""
    same = {n: _both(place, replace(usual, forward=n, backward=n)) for n in COUNTS}
    unlike = {n: _both(place, replace(usual, forward=2 if n == 1 else 1, backward=n))[1]
              for n in COUNTS}  # fmt: skip
    for forward, backward in product(COUNTS, repeat=2):
        if usual.exchange == "flat" and forward == backward == 1:
            continue
        backward_s = same[backward][1] if forward == backward else unlike[backward]
        value = replace(usual, forward=forward, backward=backward)
        yield same[forward][0] + backward_s, value


def _both(place: Place, value: ExpertPipelining | None) -> tuple[float, float]:
    """Seconds of a micro-batch through the layer, forward and backward."""
    simulator = place.simulator
    strategy = place.strategy if value is None else place.with_value(NAME, value)
    lowered = simulator.lowering.layer(place.index, strategy, None, strategy.width, place.samples)
    passes = (lowered.forward, lowered.backward)
    machine = simulator.pricer.machine
    pricer = simulator.pricer.with_link_span(machine.link_span_of(place.ranks, place.ranks))
    forward_s, backward_s = (pricer.layer_pass(one).time_s for one in passes)
    return forward_s, backward_s


TECHNIQUE = TechniqueChoice(name=NAME, tried=tried, cluster_violation=cluster_violation)
