"""tp_overlap: the price of products in chunks, each beside the collective of another.

Papers: Chang et al., FLUX (arXiv:2406.06858), sections 2 and 3; Jiang et al., MegaScale (NSDI
2024), section 3.2.

The idea: with sequence parallelism a product waits for the gather of its rows, or a reduce-scatter
for the product. Cut along the tokens into C pieces, one piece's product runs beside the collective
of another. Small products lose more than they hide, so C is a decision for each layer.

Symbols: P(m) seconds of a product of m rows, by the device's measured grid, trees or roofline;
T(b) of a collective of b bytes, its set-up in it; R seconds of copies that put rows in order.

Cost: gather, then product: the wire has all pieces at once, product i begins at
max(i * T(b/C), end of product i-1). Product, then scatter: piece i begins on the wire at
max(end of product i, end of piece i-1); going back, gathers for the gradients of weights are on
the wire before them, beside the same products. What outlasts the C products is exposed: at best one
T(b/C). C * P(m/C) - P(m) + R is the loss; no constant stands for either.

Takeaway: it pays for long products on slow links, and loses where m/C no longer fills the device.

Worked number: P 10 ms, T 8 ms, C 4, set-up free: 12 ms for the pair in place of 18.

Limits: the slowdown of products beside collectives (SMs, memory) is not in it: unmeasured. `fused`
is one kernel for both: P + (1 - E) * T + a wave of tiles. E is unmeasured here, so its price is
that of `none`, its interval from there to E = 1, and it is taken only where it is pinned. On cores
all is in line. Gradients of weights are whole products.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.strategy import LayerStrategy
from ...spec.techniques.tp_overlap import FUSED, chunks_of, overlap_of
from ...spec.techniques.tp_overlap import TECHNIQUE as VALUE
from ..technique import TechniquePrice


def cut_stack(stack: StackSpec, strategy: LayerStrategy) -> StackSpec:
    """The stack with a layer's products in chunks beside their collectives."""
    chunks = chunks_of(strategy)
    return stack if chunks == 1 else replace(stack, product_chunks=chunks)


def is_fused(strategy: LayerStrategy) -> bool:
    """True if kernels fuse products and collectives, by how much unmeasured."""
    value = overlap_of(strategy)
    return value is not None and value.kernels == FUSED


TECHNIQUE = TechniquePrice(value=VALUE, at_least="nothing", stack=cut_stack, may_hide=is_fused)
