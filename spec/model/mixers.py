"""Token mixers: attention and recurrences, through which tokens of a sequence interact.

A block's ``attention`` is one of these. Sizes are those of the whole model, before any split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from ..limits import MAX_WIDTH

Count = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Mask = Literal["causal", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head (``kv_heads == heads``), grouped-query or multi-query attention.

    ``rotary`` false: positions come from the embedding or from nowhere; ``rotary_dim`` is the
    rotated part of each head (None: all). ``window`` is the sliding window in tokens, None for
    every earlier token. ``chunk``: tokens attend within consecutive chunks of that many (Llama 4).
    ``qk_norm`` normalizes each query and key head (Qwen3), with ``qk_norm_joint`` all heads
    together (OLMo 2), without weights if ``qk_norm_weight`` is false (Llama 4). ``mask`` full lets
    every token attend to every other (encoders). ``sinks`` adds a learned logit a head to the
    softmax (GPT-OSS). ``output_gate`` multiplies the output by a sigmoid of a projection as
    wide as the queries (Qwen3-Next). ``softcap`` bounds the scores (Gemma 2).
    ``relative_buckets`` is the size of a learned table of relative positions (T5), 0 for none;
    with ``shared_bias`` the scores add the bias that the tower's first block made of its table.
    ``value_norm`` normalizes each value head without weights; with ``keys_as_values`` the key
    projection is the values too (Gemma 4).
    """

    heads: Count
    kv_heads: Count
    head_dim: Count
    rotary: bool = True
    rope_theta: float = 10000.0
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    window: Count | None = None
    rotary_dim: Count | None = None
    mask: Mask = "causal"
    sinks: bool = False
    output_gate: bool = False
    softcap: Annotated[float, Field(gt=0)] | None = None
    relative_buckets: Annotated[int, Field(ge=0)] = 0
    shared_bias: bool = False
    qk_norm_joint: bool = False
    qk_norm_weight: bool = True
    chunk: Count | None = None
    value_norm: bool = False
    keys_as_values: bool = False

    @property
    def query_dim(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of all key (or value) heads together."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Small heads that choose ``topk`` keys for each query (DeepSeek-V3.2, arXiv:2512.02556)."""

    heads: Count
    head_dim: Count
    topk: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Keys and values come from a latent of ``kv_rank``; ``rope_dim`` more channels carry the
    rotary key that all heads share. Queries come from a latent of ``query_rank``, or (None)
    from the hidden state. A query or key head is ``nope_dim + rope_dim`` wide, a value head
    ``value_dim``. An ``indexer`` chooses the keys that a query attends to (DeepSeek-V3.2).
    ``rotary`` false: nothing is turned (Kimi Linear).
    """

    kind: Literal["latent"] = "latent"
    heads: Count
    query_rank: Count | None = None
    kv_rank: Count
    nope_dim: Count
    rope_dim: Count
    value_dim: Count
    rope_theta: float = 10000.0
    bias: bool = False
    indexer: Indexer | None = None
    rotary: bool = True

    @property
    def key_dim(self) -> int:
        """Width of one query or key head."""
        return self.nope_dim + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """Selective state space, dual form (Mamba-2, arXiv:2405.21060, sections 6, 7).

    ``heads`` of ``head_dim`` channels, a state of ``state_dim`` a channel; ``groups`` share the
    input and output maps B and C. Matrix products take ``chunk`` tokens at a time. ``norm``: an RMS
    norm of the result behind its gate, or before it, or none beside the gate (Falcon-H1).
    """

    kind: Literal["state_space"] = "state_space"
    heads: Count
    head_dim: Count
    state_dim: Count
    groups: Count = 1
    conv_kernel: Count = 4
    chunk: Count = 256
    bias: bool = False
    conv_bias: bool = True
    norm: Literal["behind_gate", "before_gate", "none"] = "behind_gate"

    @property
    def inner_dim(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: heads, B and C."""
        return self.inner_dim + 2 * self.groups * self.state_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule:
    """Gated delta-rule linear attention (Gated DeltaNet, arXiv:2412.06464, section 3).

    ``key_heads`` of ``key_dim`` serve ``value_heads`` of ``value_dim``; matrix products take
    ``chunk`` tokens at a time.
    """

    kind: Literal["delta_rule"] = "delta_rule"
    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: Count = 4
    chunk: Count = 64

    @property
    def query_dim(self) -> int:
        """Width of all query (or key) heads together."""
        return self.key_heads * self.key_dim

    @property
    def inner_dim(self) -> int:
        """Width of all value heads together."""
        return self.value_heads * self.value_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: queries, keys and values."""
        return 2 * self.query_dim + self.inner_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """Gated short convolution (LFM2, arXiv:2511.23404, section 2): ``C ∘ conv(B ∘ x)``.

    B, C and x are projections to ``channels``; the convolution is causal, each channel on its own.
    """

    kind: Literal["short_convolution"] = "short_convolution"
    channels: Count
    conv_kernel: Count = 3
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDeltaAttention:
    """A delta rule whose state decays by channel (Kimi Linear, arXiv:2510.26692, section 3).

    Decays and the output's gate come from projections through ``head_dim``; matrix products take
    ``chunk`` tokens at a time.
    """

    kind: Literal["kimi_delta"] = "kimi_delta"
    heads: Count
    head_dim: Count
    conv_kernel: Count = 4
    chunk: Count = 64

    @property
    def inner_dim(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """Linear attention whose state decays at a fixed rate a head (MiniMax-01, arXiv:2501.08313).

    Queries, keys and values pass an activation; the result a norm over all heads and a sigmoid
    gate. Matrix products take ``chunk`` tokens at a time.
    """

    kind: Literal["lightning"] = "lightning"
    heads: Count
    head_dim: Count
    chunk: Count = 256

    @property
    def inner_dim(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelMixers:
    """Attention and a state space of one input, whose results are added (Falcon-H1, 2507.22448)."""

    kind: Literal["parallel"] = "parallel"
    attention: Attention
    state_space: StateSpace


def kind_or(plain: str) -> Discriminator:
    """Tell the members of a union apart by ``kind``.

    One without it is ``plain``.
    """

    def kind_of(value: Any) -> str:
        if isinstance(value, dict):
            return str(value.get("kind", plain))
        return str(getattr(value, "kind", plain))

    return Discriminator(kind_of)


Mixer = Annotated[
    Annotated[Attention, Tag("attention")]
    | Annotated[LatentAttention, Tag("latent")]
    | Annotated[StateSpace, Tag("state_space")]
    | Annotated[DeltaRule, Tag("delta_rule")]
    | Annotated[KimiDeltaAttention, Tag("kimi_delta")]
    | Annotated[LightningAttention, Tag("lightning")]
    | Annotated[ShortConvolution, Tag("short_convolution")]
    | Annotated[ParallelMixers, Tag("parallel")],
    kind_or("attention"),
]
"""A token mixer; plain attention is written without a ``kind``."""


def rotary_channels(mixer: Mixer | None) -> int:
    """Channels of a head that rotary embeddings rotate; 0 for none."""
    if isinstance(mixer, ParallelMixers):
        return rotary_channels(mixer.attention)
    if isinstance(mixer, LatentAttention):
        return mixer.rope_dim if mixer.rotary else 0
    if not isinstance(mixer, Attention) or not mixer.rotary:
        return 0
    return mixer.rotary_dim or mixer.head_dim
