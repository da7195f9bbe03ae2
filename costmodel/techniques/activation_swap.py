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
So grouped queries, gated units, latents and sequence shards need no formula of their own.

Takeaway: it pays where attention dominates; before that, recomputation is cheaper than a link that
devices share.

Worked number: 32 layers of 4096 in bf16, 2^20 tokens over 8 ranks: I and A are 1 GiB, O 14 GiB a
block; 256 GiB of host memory a device for 30 blocks give α = 0.4667 (0.4656 with log-sum-exp).

Limits: blocks of flash attention with a feed-forward layer, without cp, Ulysses and split
backwards; routed experts and products in fewer bits copy all tokens. The last blocks before the
turn swap as the others do. Devices on a link count as copying at once.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.recomputation import INPUT, OPS_PREFIX
from ...spec.report.work_items import TO_DEVICE, TO_HOST, streamed
from ...spec.techniques.activation_swap import NAME, swap_of, swapped_tokens
from ...spec.techniques.activation_swap import TECHNIQUE as VALUE
from ...spec.workload.number_formats import DTYPE_BYTES
from ..layers.layer import LayerSegment
from ..ops.attention import LOG_SUM_EXP
from ..symbolic.layer_shape import LayerShape
from ..symbolic.tape import WorkItem
from ..technique import AddedLaneWork, AddedWork, LayerAddition, LowerLayer, TechniquePrice

ATTENTION = "attention"
BUFFERS = 2
BYTES = "int8"
"""Activations of all types move as bytes."""


def addition(layer: LayerSegment, shape: LayerShape, lower: LowerLayer) -> LayerAddition:
    """Copies of a block's activations each way, and the work of those made again."""
    swap = swap_of(shape.strategy)
    if swap is None:
        raise ValueError(f"a layer without {NAME}")
    plain = replace(shape, strategy=replace(shape.strategy, techniques={}), prices=())
    whole = lower(layer, plain)
    ranks = shape.strategy.sequence_split
    tokens = shape.seq_len // ranks
    swapped = swapped_tokens(swap, tokens)
    kept = whole.input_bytes if whole.keeps_input else 0
    results = dict(whole.result_bytes)
    attention = results.get(ATTENTION, 0)
    others = whole.forward.change_bytes - whole.output_bytes - attention
    always = kept + attention
    copied = always + others * swapped // tokens
    down, up = (streamed(op, copied, 2 * copied, BYTES) for op in (TO_HOST, TO_DEVICE))
    again: tuple[WorkItem, ...] = ()
    missing = others - others * swapped // tokens
    if swapped < tokens:
        again = _made_again(layer, plain, lower, (tokens - swapped) * ranks)
    if again and swapped:
        if ranks > 1:  # later tokens of every shard, put together
            output = (attention - results[LOG_SUM_EXP]) // tokens * (tokens - swapped)
            elements = output // DTYPE_BYTES[shape.dtype]
            again = (streamed("copy", elements, 2 * output, shape.dtype), *again)
        again = (*again, streamed("copy", missing, 2 * missing, BYTES))
    return LayerAddition(
        backward=AddedWork(items=again, scratch_bytes=missing if swapped else 0),
        beside_forward=(AddedLaneWork(lane="to_host", items=(down,), begins="after", lag=BUFFERS),),
        beside_backward=(AddedLaneWork(lane="to_device", items=(up,), begins="before"),),
        kept_bytes=-(always + others),
        releases_input=whole.keeps_input,
        kept_tier_bytes=(("host", copied),),
        beside_bytes=always + others,
    )


def _made_again(
    layer: LayerSegment, plain: LayerShape, lower: LowerLayer, tokens: int
) -> tuple[WorkItem, ...]:
    """Work of a block's forward on so many tokens of the sequence, core attention left out."""
    recompute = f"{OPS_PREFIX}{INPUT},{ATTENTION}"
    strategy = replace(plain.strategy, recompute=recompute)
    lowered = lower(layer, replace(plain, strategy=strategy, seq_len=tokens))
    return tuple(entry.work for entry in lowered.backward.entries if entry.recomputed)


TECHNIQUE = TechniquePrice(value=VALUE, at_least="work", lowered_layer=addition)
