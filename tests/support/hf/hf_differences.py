"""Where the library's eager blocks save other bytes than the lowered layers, op by op.

Each difference picks saved storages by what made them and which module saved them, and says
what the lowered layer keeps in their place. What no difference picks must agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from hf.hf_trace import INPUT, Saved, Trace


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Saved storages that the lowered layer keeps in another size, or not at all.

    ``op`` and ``saved_in`` are patterns of the whole name. ``ours`` is the bytes that the
    lowering keeps for each byte that the library keeps; ``axes`` is the rank of the tensor;
    ``case``, ``attention`` and ``run`` (fp32 or bf16) are patterns of where it is looked for;
    ``view`` picks parts of larger storages, of which the lowering keeps the part.
    """

    op: str
    saved_in: str
    reason: str
    ours: float = 0.0
    dtype: str = ".*"
    axes: int | None = None
    case: str = ".*"
    attention: str = ".*"
    run: str = ".*"
    view: bool = False

    def about(self, case: str, attention: str, dtype: str) -> bool:
        """Whether it can show in a run of a case."""
        pairs = ((self.case, case), (self.attention, attention), (self.run, dtype))
        return all(re.fullmatch(pattern, name) for pattern, name in pairs)

    def picks(self, item: Saved) -> bool:
        """Whether this difference is about a saved storage."""
        pairs = ((self.op, item.op), (self.saved_in, item.saved_in), (self.dtype, item.dtype))
        if self.axes is not None and len(item.shape) != self.axes:
            return False
        if self.view and item.read_bytes == item.size_bytes:
            return False
        return all(re.fullmatch(pattern, name) for pattern, name in pairs)

    def our_bytes(self, item: Saved) -> int:
        """What the lowering keeps in its place."""
        return item.read_bytes if self.view else round(item.size_bytes * self.ours)


class Listed(NamedTuple):
    """One difference as it was found in a trace: bytes on each side."""

    op: str
    reason: str
    library_bytes: int
    our_bytes: int


NORMS = r"(?!mixer\.|mamba\.|linear_attn\.|self_attn\.o_norm).*(norm\w*|ln_q)"
"""Norms around a block's parts; those inside scans are lowered operation by operation."""
DIFFERENCES = (
    Difference(
        op="pow",
        saved_in=NORMS,
        case="gemma4_.*",
        reason="the norm keeps the mean square beside its root; ours keeps the root",
    ),
    Difference(
        op="_to_copy",
        saved_in=r".*v_norm",
        dtype="float32",
        run="bf16",
        case="gemma4_full",
        reason="keys that are values too are cast once more; ours keeps them once",
    ),
    Difference(
        op="add|_to_copy",
        saved_in=NORMS,
        axes=1,
        reason="the weight as the norm uses it, cast or with one added; ours reads the parameter",
    ),
    Difference(
        op="_to_copy",
        saved_in=NORMS,
        dtype="float32",
        run="bf16",
        case="t5_.*",
        reason="the norm keeps its input cast to fp32 beside its input; ours casts it again",
    ),
    Difference(
        op="add",
        saved_in=r".*relative_attention_bias",
        run="fp32",
        ours=3.0,
        reason="buckets of all pairs; ours keeps the bias too, which the layers after it read",
    ),
    Difference(
        op="add",
        saved_in=r".*relative_attention_bias",
        run="bf16",
        ours=2.0,
        reason="buckets of all pairs; ours keeps the bias too, which the layers after it read",
    ),
    Difference(
        op=f"{INPUT}|gather",
        saved_in=r"|.*embeddings?(\.projection)?",
        case="embedding|bert_embedding|patches",
        reason="tokens, segments and pixels belong to the batch, which outlives both passes",
    ),
    Difference(
        op=INPUT,
        saved_in=r".*EncDecAttention\.k",
        reason="the other tower's output: it is counted once for all layers that read it",
    ),
    Difference(
        op="_to_copy",
        saved_in=r".*kv_a_layernorm",
        dtype="float32",
        run="bf16",
        ours=(24 + 8) / 24 / 2,
        reason="the norm keeps its input cast to fp32; ours as it came, with the rotary key",
    ),
    Difference(
        op="_to_copy",
        saved_in=NORMS,
        dtype="float32",
        run="bf16",
        ours=0.5,
        reason="the norm keeps its input cast to fp32; ours keeps it as it came and casts again",
    ),
    Difference(
        op="mul|_to_copy",
        saved_in=r"(?!self_attn\.qk_norm)" + NORMS,
        reason="the norm keeps the normalised input for its weight's gradient; ours makes it again",
    ),
    Difference(
        op="native_layer_norm",
        saved_in=r".*(ln_\d|norm\w*|LayerNorm)",
        dtype="bfloat16",
        run="bf16",
        ours=2.0,
        reason="statistics of a 16-bit layer norm: 16-bit on a CPU; fp32 on a GPU and in ours",
    ),
    Difference(
        op="tanh|add|mul|pow|sigmoid",
        saved_in=r".*\.act",
        reason="GELU written out keeps every step; ours keeps its input",
    ),
    Difference(
        op="silu|gelu",
        saved_in=r".*(mlp|expert|experts|feed_forward)",
        reason="the activated gate is kept for the product; ours makes it again from the gate",
    ),
    Difference(
        op=INPUT,
        saved_in=r".*(attn|attention)",
        reason="cosines and sines: one table for all layers, made before them; no layer's bytes",
    ),
    Difference(
        op="clone",
        saved_in="self_attn",
        axes=4,
        case="ernie4_5_moe",
        reason="cosines and sines of interleaved channels: a table for all layers, too",
    ),
    Difference(
        op="mul",
        saved_in=r"self_attn\.q_proj",
        case="falcon_h1.*",
        reason="each mixer has its input times a factor; ours has one input for both",
    ),
    Difference(
        op="_softmax",
        saved_in=r".*(attn|attention|mixer)",
        dtype="float32",
        run="bf16",
        reason="softmax in fp32 keeps its result beside the 16-bit copy that the product reads",
    ),
    Difference(
        op="mm|addmm",
        saved_in=r"(self_attn|attention|attn).*(?<!kv_a_layernorm)",
        view=True,
        reason="a part of a joint projection keeps all of it; ours projects each part on its own",
    ),
    Difference(
        op="clone",
        saved_in="self_attn",
        axes=4,
        case="glm4|ernie4_5",
        reason="cosines and sines interleaved anew; ours reads one table for all layers",
    ),
    Difference(
        op="clone",
        saved_in=r"self_attn(\.o_proj)?|attention\.dense",
        case="gpt_neox|gated_attention|glm4|glm4_moe|minimax_m2",
        attention="flash",
        reason="attention's result goes back into token order: partial rotary left heads first",
    ),
    Difference(
        op="clone",
        saved_in="self_attn",
        axes=3,
        case="latent|latent_indexed|glm4_moe_lite|deepseek_v3",
        ours=(16 + 12) / 12,
        reason="the product copies the values; ours reads them in the joint projection of keys",
    ),
    Difference(
        op="cat",
        saved_in=r"attn\.proj",
        attention="flash",
        reason="results of images and windows, joined once more; ours keeps them once",
    ),
    Difference(
        op="clone",
        saved_in=r".*avg_pool",
        reason="pooling keeps its input; the gradient of a mean needs none",
    ),
    Difference(
        op="clone",
        saved_in="self_attn",
        axes=3,
        case="latent_unturned",
        ours=(24 + 16 + 12) / (24 + 12),
        reason="copies of queries and of values; ours keeps queries, and values beside the keys",
    ),
    Difference(
        op="sort|empty_like|cumsum",
        saved_in=r".*experts",
        reason="the order of the rows, its inverse and each expert's end; ours keeps it once",
    ),
    Difference(
        op="sum|add|clamp|bitwise_not",
        saved_in=r"(?!.*forget_gate).*gate",
        case="(?!flex_olmo).*",
        reason="what weights are divided by and the groups left out; ours keeps the weights",
    ),
    Difference(
        op="topk",
        saved_in=r".*gate",
        axes=3,
        reason="which experts make a group's score; ours keeps no gradient of the choice",
    ),
    Difference(
        op="_to_copy",
        saved_in=r".*gate",
        dtype="float32",
        run="bf16",
        reason="the router keeps casts of input and weight to fp32; ours casts its result",
    ),
    Difference(
        op="_log_softmax",
        saved_in="",
        dtype="bfloat16",
        run="bf16",
        ours=2.0,
        reason="some losses stay in the logits' type; ours is in fp32",
    ),
)


def listed_differences(
    trace: Trace, case: str, attention: str, dtype: str
) -> tuple[list[Listed], list[Saved]]:
    """The differences of a trace, and the saved storages that none of them picks.

    Args:
        trace: of a block.
        case: name of its case.
        attention: ``flash`` or ``unfused``.
        dtype: ``fp32`` or ``bf16``.
    """
    rest, found = list(trace.saved), []
    for difference in DIFFERENCES:
        if not difference.about(case, attention, dtype):
            continue
        picked = [item for item in rest if difference.picks(item)]
        rest = [item for item in rest if item not in picked]
        if picked:
            ops = ", ".join(sorted({item.op for item in picked}))
            library = sum(item.size_bytes for item in picked)
            ours = sum(map(difference.our_bytes, picked))
            listed = Listed(ops, difference.reason, library, ours)
            found.append(listed)
    return found, rest
