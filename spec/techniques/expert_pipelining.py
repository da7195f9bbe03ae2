"""expert_pipelining: exchanges of experts' rows beside their products, in chunks.

Exact: the same sums, in another order. Planned, simulated and run, for blocks whose experts lie on
several ranks. The card is in ``costmodel.techniques.expert_pipelining``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal, cast

from ..limits import MAX_DEVICES_PER_NODE
from ..technique import LayerKinds, TechniqueValue

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..parallel.rank_groups import RankGroup
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "expert_pipelining"
Count = Literal[1, 2, 4, 8]
COUNTS: tuple[Count, ...] = (1, 2, 4, 8)
USUAL_NODE = 8
HIERARCHICAL = "hierarchical"
_WORD = re.compile(r"([1248])/([1248])(?:(:hierarchical)(?:@([1-9][0-9]{0,4}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPipelining:
    """Chunks of a layer's expert rows in each direction, and how they travel.

    ``exchange`` flat: one all-to-all over all ranks with experts. hierarchical: one between nodes,
    of ``node_ranks`` consecutive ranks each, and one inside a node.
    """

    forward: Count = 2
    backward: Count = 2
    exchange: Literal["flat", "hierarchical"] = "flat"
    node_ranks: int = USUAL_NODE


def value_of(strategy: LayerStrategy) -> ExpertPipelining | None:
    """The value of a layer; None: its exchanges are in line with the products."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, ExpertPipelining) else None


def exchange_groups(strategy: LayerStrategy) -> tuple[RankGroup, RankGroup]:
    """Ranks of the exchange between nodes, and of that inside a node.

    Flat: all ranks with other experts, and one.
    """
    from ..parallel.rank_groups import RankGroup, expert_group

    whole, value = expert_group(strategy), value_of(strategy)
    inner = 1
    if value is not None and value.exchange == HIERARCHICAL:
        inside, rest = divmod(value.node_ranks, whole.stride)
        inner = 1 if rest else math.gcd(whole.size, inside)
    return (
        RankGroup(whole.size // inner, whole.stride * inner),
        RankGroup(inner, whole.stride),
    )


def groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    """Groups of both levels, and of the ranks that split an expert."""
    from ..parallel.rank_groups import expert_tensor_group

    if value_of(strategy) is None:
        return ()
    return (*exchange_groups(strategy), expert_tensor_group(strategy))


def part_violation(layer: Layer) -> str | None:
    """What a layer lacks: experts."""
    from ..model.experts import experts_of

    has_experts = experts_of(layer) is not None
    return None if has_experts else f"{NAME} needs experts, which dense blocks lack"


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's value breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    from ..model.experts import experts_of
    from ..model.feed_forward import BALANCED_GATES

    value, moe = value_of(strategy), experts_of(layer)
    if value is None or moe is None:
        return None
    if strategy.ep == 1:
        return f"{NAME} needs experts on several ranks: ep above 1"
    if moe.gate in BALANCED_GATES:
        return f"{NAME} of experts behind the gate {moe.gate} is not built yet"
    if moe.capacity_factor is not None or moe.bias or moe.weigh == "inputs":
        limited = moe.capacity_factor is not None
        what = "a capacity factor" if limited else "biases or weighed inputs"
        return f"{NAME} of experts with {what} is not built yet"
    if dtype.matmul is not None:
        return f"{NAME} of products in {dtype.matmul} is not built yet"
    if strategy.recompute.startswith(("ops:", "selective-ops")):
        return f"{NAME} beside recompute {strategy.recompute} is not built yet"
    others = [name for name in strategy.techniques if name in ("compile", "activation_swap")]
    if others:
        return f"{NAME} beside {others[0]} is not built yet"
    return _form_violation(value, strategy)


def _form_violation(value: ExpertPipelining, strategy: LayerStrategy) -> str | None:
    if not {value.forward, value.backward} <= {*COUNTS}:
        return f"{NAME} has 1, 2, 4 or 8 chunks, not {value.forward}/{value.backward}"
    if not 1 <= value.node_ranks <= MAX_DEVICES_PER_NODE:
        return f"{NAME} has nodes of 1 to {MAX_DEVICES_PER_NODE} ranks, not {value.node_ranks}"
    if value.exchange != HIERARCHICAL:
        if value.node_ranks != USUAL_NODE:
            return f"{NAME} has ranks of a node only where it is {HIERARCHICAL}"
        if value.forward == value.backward == 1:
            return f"{NAME} 1/1 is one chunk each way: leave the technique out"
        return None
    outer, inner = exchange_groups(strategy)
    if outer.size == 1:
        return f"{NAME} {HIERARCHICAL} needs several nodes; ep {strategy.ep} is inside one"
    if inner.size == 1:
        return f"{NAME} {HIERARCHICAL} needs several ranks with other experts in a node"
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """The rule of a stack broken by a layer's value, or None."""
    if value_of(strategy) is None:
        return None
    if stack.overlaps.ep:
        return f"the stack {stack.name} hides exchanges beside another micro-batch already"
    if stack.fusion.weighted_activation or stack.expert_dispatch != "rows":
        return f"the stack {stack.name} does not send whole rows of experts alone"
    return None


def word_of(value: ExpertPipelining) -> str:
    """The word of a value: chunks forward and backward, and how they travel if not flat."""
    word = f"{value.forward}/{value.backward}"
    if value.exchange == HIERARCHICAL:
        word += f":{HIERARCHICAL}"
    return word if value.node_ranks == USUAL_NODE else f"{word}@{value.node_ranks}"


def from_word(word: str) -> ExpertPipelining | None:
    """The value of a word; None: it is none."""
    typed = _WORD.fullmatch(word)
    if typed is None:
        return None
    forward, backward, hierarchical, node = typed.groups()
    node_ranks = USUAL_NODE if node is None else int(node)
    if (hierarchical is None and forward == backward == "1") or node_ranks > MAX_DEVICES_PER_NODE:
        return None
    return ExpertPipelining(
        forward=cast(Count, int(forward)),
        backward=cast(Count, int(backward)),
        exchange="flat" if hierarchical is None else "hierarchical",
        node_ranks=node_ranks,
    )


FLAT = tuple(f"{f}/{b}" for f, b in product(COUNTS, repeat=2) if f * b > 1)

TECHNIQUE = TechniqueValue(
    name=NAME,
    value=ExpertPipelining,
    kinds=LayerKinds.all_of("block"),
    part_violation=part_violation,
    words=(*FLAT, f"1/1:{HIERARCHICAL}", f"2/2:{HIERARCHICAL}"),
    word_of=word_of,
    from_word=from_word,
    help="Chunks of expert rows forward/backward, of 1, 2, 4 or 8 each, whose exchanges run beside "
    "products: none, 2/4, …; 2/4:hierarchical exchanges between nodes and inside them apart, @N "
    "says ranks of a node, 8 if left out.",
    metavar="F/B",
    systems=("FSMoE",),
    legality_violation=legality_violation,
    stack_violation=stack_violation,
    groups=groups,
)
