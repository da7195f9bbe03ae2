"""activation_swap: the price of activations on the host, and of those made again.

Paper: Zhao et al., MEMO (SIGMOD 2025, arXiv:2407.12117), sections 4.1 (which activations go, the
share) and 4.2 (two buffers).

The idea: attention's work grows with the square of a sequence, activations with its length, so from
some length on they can wait in the host's memory for nothing. A block's input and core attention's
output go whole; of everything else a share of the tokens goes, and the rest is made again in the
backward, token by token, for nothing but attention mixes tokens.

Symbols: T tokens of a rank, α the share; I bytes of the block's input, A of core attention's output
with its log-sum-exp, O of all else that the backward reads; f seconds of a forward without core
attention; L a device's share of the link's bytes/s one way, H bytes of the host a device, n blocks.

Cost: (I + A + αO)/L beside the forward, done before the block after the next begins, whose buffer
it frees; as much beside the backward of the block behind; (1 - α)·f in line before the block's own
backward, with the gathers and sums of tensor parallelism in it, and one copy that puts both ranges
of tokens together, 2·O bytes. The host holds I + A + αO a block and micro-batch in flight, the
device nothing but two buffers of I + A + O where copies run beside.

The share that hides: α = min(1, (L·f' - I - A)/O, (H/n - I - A)/O), f' the block's forward with
attention; a search refines it on simulated steps.

All of I, A, O and f are read off the lowered block: O is what its forward keeps beyond I and A; the
kernels made again are those of recomputation by operation with attention kept, on (1 - α)·T tokens.
So grouped queries, gated units, latents and sequence shards need no formula of their own. A is all
that core attention saves beyond its inputs: with Ulysses its exchanged queries, keys and values
too, so that nothing is exchanged or sent around a ring again.

Takeaway: it pays where attention dominates; before that, recomputation is cheaper than a link that
devices share.

Worked number: 32 layers of 4096 in bf16, 2^20 tokens over 8 ranks: I and A are 1 GiB, O 14 GiB a
block; 256 GiB of host memory a device for 30 blocks give α = 0.4667 (0.4656 with log-sum-exp).

Limits: blocks of flash attention with a feed-forward layer, without compile and split backwards;
routed experts and products in fewer bits copy all tokens. The last blocks before the turn swap as
the others do. Devices on a link count as copying at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...spec.recomputation import INPUT, OPS_PREFIX
from ...spec.report.work_items import TO_DEVICE, TO_HOST, streamed
from ...spec.techniques.activation_swap import NAME, swap_of, swapped_tokens
from ...spec.techniques.activation_swap import TECHNIQUE as VALUE
from ...spec.workload.number_formats import DTYPE_BYTES
from ..layers.core_attention import ATTENDED, CORE_ATTENTION
from ..layers.layer import LayerSegment
from ..symbolic.layer_shape import LayerShape
from ..technique import (
    NO_WORK,
    AddedLaneWork,
    AddedWork,
    LayerAddition,
    LowerLayer,
    TechniquePrice,
)

if TYPE_CHECKING:
    from ...spec.strategy import LayerStrategy
    from ..lowering.layer_lowering import LoweredLayer

ATTENTION = "attention"
BUFFERS = 2
BYTES = "int8"
"""Activations of all types move as bytes."""


class _Activations(NamedTuple):
    """A block's activations on a rank; the first two go whole, ``others`` by tokens.

    ``attended``: those of ``attention``'s bytes that are its output; ``swapped`` of ``tokens`` go,
    of each of the ``gathered`` sequence shards that attention's output has on a rank.
    """

    block_input: int
    attention: int
    attended: int
    others: int
    tokens: int
    swapped: int
    gathered: int

    @property
    def total_bytes(self) -> int:
        return self.block_input + self.attention + self.others

    @property
    def missing_bytes(self) -> int:
        """Of the tokens that are made again."""
        return self.others - self.others * self.swapped // self.tokens

    @property
    def copied_bytes(self) -> int:
        return self.total_bytes - self.missing_bytes

    @property
    def later_output_bytes(self) -> int:
        """Core attention's output for the tokens that are made again."""
        return self.attended // self.tokens * (self.tokens - self.swapped)


def addition(layer: LayerSegment, shape: LayerShape, lower: LowerLayer) -> LayerAddition:
    """Copies of a block's activations each way, and the work of those made again."""
    plain = replace(shape, strategy=replace(shape.strategy, techniques={}), prices=())
    whole = lower(layer, plain)
    sizes = _activations(whole, shape)
    copied = sizes.copied_bytes
    down, up = (streamed(op, copied, 2 * copied, BYTES) for op in (TO_HOST, TO_DEVICE))
    return LayerAddition(
        backward=_made_again(layer, plain, lower, sizes),
        beside_forward=(AddedLaneWork(lane="to_host", items=(down,), begins="after", lag=BUFFERS),),
        beside_backward=(AddedLaneWork(lane="to_device", items=(up,), begins="before"),),
        kept_bytes=-sizes.total_bytes,
        kept_tier_bytes=(("host", copied),),
        releases_input=whole.keeps_input,
        beside_bytes=sizes.total_bytes,
    )


def _activations(whole: LoweredLayer, shape: LayerShape) -> _Activations:
    swap, results = swap_of(shape.strategy), dict(whole.result_bytes)
    if swap is None:
        raise ValueError(f"a layer without {NAME}")
    strategy = shape.strategy
    tokens, attention = shape.seq_len // strategy.sequence_split, results.get(CORE_ATTENTION, 0)
    return _Activations(
        block_input=whole.input_bytes if whole.keeps_input else 0,
        attention=attention,
        attended=results.get(ATTENDED, 0),
        others=whole.forward.change_bytes - whole.output_bytes - attention,
        tokens=tokens,
        swapped=swapped_tokens(swap, tokens),
        gathered=strategy.tp if strategy.megatron_sp else 1,
    )


def _made_again(
    layer: LayerSegment, plain: LayerShape, lower: LowerLayer, sizes: _Activations
) -> AddedWork:
    """The block's forward on the tokens that were not copied, core attention left out."""
    if sizes.swapped == sizes.tokens:
        return NO_WORK
    tokens = (sizes.tokens - sizes.swapped) * sizes.gathered
    later = replace(plain, seq_len=tokens, before=None, strategy=_one_part(plain.strategy))
    without = replace(later.strategy, recompute=f"{OPS_PREFIX}{INPUT},{ATTENTION}")
    backward = lower(layer, replace(later, strategy=without)).backward
    items = tuple(entry.work for entry in backward.entries if entry.recomputed)
    if not sizes.swapped:
        return AddedWork(items=items)
    whole = lower(layer, later)
    made = whole.forward
    attention = dict(whole.result_bytes).get(CORE_ATTENTION, 0)
    kept_bytes = made.change_bytes - whole.output_bytes - attention
    unkept_bytes = kept_bytes - sizes.missing_bytes  # rings keep copies of their own
    scratch_bytes = made.peak_bytes - attention - unkept_bytes
    if made.peak_bytes == made.change_bytes + whole.output_bytes:  # at the last sum, which is not
        scratch_bytes -= whole.output_bytes
    if sizes.gathered > 1:  # the output for later tokens of every shard, put together
        output_bytes = sizes.later_output_bytes
        elements = output_bytes // DTYPE_BYTES[plain.dtype]
        items = (streamed("copy", elements, 2 * output_bytes, plain.dtype), *items)
        scratch_bytes += output_bytes
    join = streamed("copy", sizes.missing_bytes, 2 * sizes.missing_bytes, BYTES)
    return AddedWork(items=(*items, join), scratch_bytes=scratch_bytes)


def _one_part(strategy: LayerStrategy) -> LayerStrategy:
    """The strategy of the same work outside core attention, its sequence taken as whole."""
    if strategy.ulysses:
        strategy = replace(strategy, tp=1, sequence_parallel="none")
    return replace(strategy, cp=1)


TECHNIQUE = TechniquePrice(value=VALUE, at_least="work", lowered_layer=addition)
