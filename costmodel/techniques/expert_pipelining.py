"""expert_pipelining: the price of experts' rows in chunks, on three streams.

Paper: FSMoE (ASPLOS 2025, arXiv:2501.10714), sections 3 and 4; DeepEP's way over nodes.

The idea: rows go to their experts in r chunks, so that one is on its way between nodes, one inside
them, and one in the products. r is chosen for each layer and each direction, since products take
twice as long going back. In the hierarchical exchange, rows cross between nodes first, to the rank
with the same place, and are passed on inside the node; results come back the other way.

Symbols, of one chunk: A exchange between nodes (flat: of all ranks), C the same going back; G and R
inside a node, with etp's gather and reduce-scatter; E products, sorts and activation; W weights'
gradients, for which the way back does not wait.

Cost: T(r) = max(A+G+E+R+C + (r-1)·max(A,G,E+W,R,C), A+G+E+W + (r-1)·max(A,G,E+W),
A+G+R+C + (r-1)·(max(A,G) + max(R,C)), r·(A+C)). It equals an event simulation of the three
streams. Where both levels of the way are one link, they take turns: A+G and R+C, without G and R.
T - r·(E+W) is exposed. Chunks of products are looked up at their own size. Beside T: copies of
rows, where the directions differ in chunks; an addition of the weights' gradients for each further
chunk; and the activation once more going back, in place of a kept result.

Takeaway: more chunks hide more, until their set-up and small products cost as much. Going back,
with longer products, fewer chunks are often best.

Worked number: A = C = 4 ms whole, products 6 ms, set-up free: 14 ms in line, 8 ms in 4 chunks.

Limits: products beside exchanges are slower by the stack's factor for all that overlaps, which is
unmeasured here. Sharding traffic beside the layer is not slowed by its exchanges, as it is not by
those in line. On cores the exchanges run beside the products too, since the wire does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...spec.cluster.stack_spec import ExpertChunks, StackSpec
from ...spec.strategy import LayerStrategy
from ...spec.techniques.expert_pipelining import HIERARCHICAL, exchange_groups, value_of
from ...spec.techniques.expert_pipelining import TECHNIQUE as VALUE
from ..pricing.expert_events import chunk_events
from ..pricing.expert_streams import PricedChunks
from ..technique import TechniquePrice
from ..technique_spans import LaneSpan, LaneSpans, PricedPass

RANKS, NODES = "rows, all ranks", "rows between nodes"
INSIDE, PRODUCTS = "rows inside nodes", "experts"
NAMES = {"experts": "products"}


def cut_stack(stack: StackSpec, strategy: LayerStrategy) -> StackSpec:
    """The stack with a layer's expert rows in chunks."""
    value = value_of(strategy)
    if value is None:
        return stack
    _, inside = exchange_groups(strategy)
    chunks = ExpertChunks(forward=value.forward, backward=value.backward, inside=inside.size)
    return replace(stack, expert_chunks=chunks)


def stream_spans(layer: PricedPass) -> LaneSpans:
    """Every chunk on its three streams, as far apart as the price has them.

    Where products slow down beside exchanges, all pieces are longer by the share of the whole.
    """
    found, spans = layer.pricer.placed_chunks(layer.passes[0]), list[LaneSpan]()
    for place, (start_s, priced) in enumerate(found):
        is_recomputed = place < len(found) - 1  # a forward in a backward, which has no window
        window_s = 0.0 if is_recomputed else layer.sums_s
        spans += _spans(layer.strategy, start_s, priced, window_s)
    return tuple(spans)


def _spans(
    strategy: LayerStrategy, start_s: float, priced: PricedChunks, window_s: float
) -> Iterator[LaneSpan]:
    events = chunk_events(priced.chunks, priced.each, window_s)
    if not events:
        return
    value = value_of(strategy)
    by_node = value is not None and value.exchange == HIERARCHICAL
    lanes = {"outer": NODES if by_node else RANKS, "inner": INSIDE, "products": PRODUCTS}
    whole_s = priced.exposed_s(window_s) + priced.products_s
    stretch = whole_s / max(event.end_s for event in events)
    for stream, stage, chunk, begins_s, ends_s in events:
        yield LaneSpan(
            lane=lanes[stream],
            name="sums" if stage == "window" else f"{NAMES.get(stage, stage)} {chunk}",
            start_s=start_s + begins_s * stretch,
            duration_s=(ends_s - begins_s) * stretch,
            term="matmul" if stream == "products" else "exposed_ep",
        )


TECHNIQUE = TechniquePrice(value=VALUE, at_least="products", stack=cut_stack, spans=stream_spans)
