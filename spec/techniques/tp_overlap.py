"""tp_overlap: products of tensor parallelism beside their own collectives, in chunks or fused.

Exact: the same sums, in another order. Planned, simulated and run, for blocks with Megatron's
sequence parallelism. The card is in ``costmodel.techniques.tp_overlap``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..technique import LayerKinds, TechniqueValue

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..parallel.rank_groups import RankGroup
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "tp_overlap"
FUSED = "fused"
CHUNKS = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallelOverlap:
    """Overlap of a block's tensor-parallel collectives with their products.

    ``chunks``: pieces of a product and its collective; 1 where ``kernels`` fuse both in one.
    """

    kernels: Literal["chunked", "fused"] = "chunked"
    chunks: int = 4


NAMED = {
    **{f"chunked:{chunks}": TensorParallelOverlap(chunks=chunks) for chunks in CHUNKS},
    FUSED: TensorParallelOverlap(kernels="fused", chunks=1),
}


def overlap_of(strategy: LayerStrategy) -> TensorParallelOverlap | None:
    """The overlap of a layer's collectives; None: they are in line."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, TensorParallelOverlap) else None


def chunks_of(strategy: LayerStrategy) -> int:
    """Pieces of a layer's products and collectives; 1: they are whole."""
    value = overlap_of(strategy)
    return 1 if value is None else value.chunks


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's overlap breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    value = overlap_of(strategy)
    if value not in NAMED.values():
        return f"{NAME} is {', '.join(NAMED)}"
    if not strategy.megatron_sp:
        return f"{NAME} needs tp above 1 with Megatron's sequence parallelism"
    if _unlike_dense(layer):
        return f"{NAME} is built for blocks of plain attention and an MLP so far"
    if dtype.matmul is not None:
        return f"{NAME} of products in {dtype.matmul} is not built yet"
    others = [name for name in strategy.techniques if name in ("compile", "activation_swap")]
    return f"{NAME} beside {others[0]} is not built yet" if others else None


def _unlike_dense(layer: Layer) -> bool:
    from ..model.feed_forward import Mlp
    from ..model.layers import BlockLayer
    from ..model.mixers import Attention

    if not isinstance(layer, BlockLayer):
        return True
    plain = isinstance(layer.attention, Attention) and isinstance(layer.mlp, Mlp)
    return not plain or layer.cross_attention is not None


def token_violation(strategy: LayerStrategy, seq_len: int) -> str | None:
    """Why a sample's tokens cannot be cut so, or None."""
    chunks, tokens = chunks_of(strategy), seq_len // strategy.sequence_split
    if tokens % chunks:
        return f"{NAME} chunked:{chunks} does not divide the {tokens} tokens of a rank"
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """The rule of a stack broken by a layer's overlap, or None."""
    if overlap_of(strategy) is not None and stack.overlaps.tp:
        return f"the stack {stack.name} overlaps every layer's collectives already"
    return None


def groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    """The tensor group once more: chunks wait for nothing else on their way."""
    from ..parallel.rank_groups import tensor_group

    return () if overlap_of(strategy) is None else (tensor_group(strategy),)


def word_of(value: TensorParallelOverlap) -> str:
    """The word of a value: ``fused``, or ``chunked`` with the number of pieces."""
    return FUSED if value.kernels == FUSED else f"chunked:{value.chunks}"


def from_word(word: str) -> TensorParallelOverlap | None:
    """The value of a word; None: it is none."""
    return NAMED.get(word)


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=TensorParallelOverlap,
    kinds=LayerKinds.all_of("block"),
    words=(*NAMED,),
    word_of=word_of,
    from_word=from_word,
    help="none, chunked:2, chunked:4 or chunked:8 (a product and its collective in pieces, one "
    "beside the other), or fused (one kernel for both, on CUDA devices).",
    metavar="O",
    systems=("Flux", "MegaScale"),
    legality_violation=legality_violation,
    token_violation=token_violation,
    stack_violation=stack_violation,
    groups=groups,
)
