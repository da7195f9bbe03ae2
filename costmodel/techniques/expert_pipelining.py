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

from dataclasses import replace

from ...spec.cluster.stack_spec import ExpertChunks, StackSpec
from ...spec.strategy import LayerStrategy
from ...spec.techniques.expert_pipelining import TECHNIQUE as VALUE
from ...spec.techniques.expert_pipelining import exchange_groups, value_of
from ..technique import TechniquePrice


def cut_stack(stack: StackSpec, strategy: LayerStrategy) -> StackSpec:
    """The stack with a layer's expert rows in chunks."""
    value = value_of(strategy)
    if value is None:
        return stack
    _, inside = exchange_groups(strategy)
    chunks = ExpertChunks(forward=value.forward, backward=value.backward, inside=inside.size)
    return replace(stack, expert_chunks=chunks)


TECHNIQUE = TechniquePrice(value=VALUE, at_least="products", stack=cut_stack)
