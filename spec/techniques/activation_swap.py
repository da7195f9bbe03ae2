"""activation_swap: activations of a block wait in the host's memory, some of them made again.

Exact: the same numbers, elsewhere or a second time. Tried where a cluster grants memory of its
hosts. The card is in ``costmodel.techniques.activation_swap``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..number_family import NumberFamily
from ..technique import LayerKinds, TechniqueValue
from .compile import NAME as COMPILE

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "activation_swap"
SWAP = "swap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationSwap:
    """A block's activations on the host between its passes.

    ``share``: of the tokens whose activations are copied; those of the others are made again in the
    backward. The block's input and core attention's output are always copied whole.
    """

    share: float = 1.0


def swap_of(strategy: LayerStrategy) -> ActivationSwap | None:
    """The swap of a layer; None: it has none."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, ActivationSwap) else None


def swapped_tokens(value: ActivationSwap, tokens: int) -> int:
    """Tokens of a rank, of ``tokens`` between layers, whose activations are copied."""
    return int(value.share * tokens)


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's swap breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    from ..model.experts import experts_of
    from ..model.layers import BlockLayer
    from ..model.mixers import Attention, LatentAttention

    swap = swap_of(strategy)
    if swap is None or not isinstance(layer, BlockLayer):
        return None
    if COMPILE in strategy.techniques:
        return f"{NAME} beside {COMPILE} is not built: generated code keeps what it likes"
    if not 0 <= swap.share <= 1:
        return f"{NAME} has a share of 0 to 1, not {swap.share:g}"
    if strategy.recompute != "none":
        return f"{NAME} beside recompute {strategy.recompute}: a layer swaps or recomputes"
    if not isinstance(layer.attention, (Attention, LatentAttention)) or layer.mlp is None:
        return f"{NAME} needs blocks of attention and a feed-forward layer"
    if layer.cross_attention is not None:
        return f"{NAME} of cross-attention is not built"
    mixer = layer.attention
    if isinstance(mixer, Attention) and (mixer.relative_buckets or mixer.shared_bias):
        return f"{NAME} of attention with learned biases is not built: no flash kernel does it"
    if swap.share < 1 and experts_of(layer) is not None:
        return f"{NAME} of routed experts copies all tokens: {SWAP}:1"
    if dtype.matmul is not None and swap.share < 1:
        return f"{NAME} in {dtype.matmul} products copies all tokens: {SWAP}:1"
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """The rule of a stack broken by a layer's swap, or None."""
    if swap_of(strategy) is not None and stack.attention != "flash":
        return f"{NAME} needs flash attention, which the stack {stack.name} has not"
    return None


def word_of(value: ActivationSwap) -> str:
    """The word of a value."""
    return SWAP if value.share == 1 else FAMILY.word_of(value.share)


def from_word(word: str) -> ActivationSwap | None:
    """The value of ``swap``; None: it is another word."""
    return ActivationSwap() if word == SWAP else None


FAMILY = NumberFamily(
    word=SWAP,
    low=0.0,
    high=1.0,
    make=lambda share: ActivationSwap(share=share),
    number_of=lambda value: value.share,
    above_chord=True,
)
TECHNIQUE = TechniqueValue(
    name=NAME,
    value=ActivationSwap,
    kinds=LayerKinds.all_of("block"),
    words=(SWAP,),
    word_of=word_of,
    from_word=from_word,
    families=(FAMILY,),
    help="Activations of blocks on the host: none, swap, or swap:SHARE of the tokens.",
    metavar="S",
    systems=("MEMO",),
    legality_violation=legality_violation,
    stack_violation=stack_violation,
    joins_backward=lambda strategy: swap_of(strategy) is not None,
    one_document=True,
)
