"""Layer kinds that towers are stacked from; equal layers are priced once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .feed_forward import FeedForward
from .mixers import Attention, Count, Mixer

NormKind = Literal["layernorm", "rmsnorm"]
Epsilon = Annotated[float, Field(gt=0)]
EMBEDDING_NORM_EPS = 1e-12
"""For norms inside embeddings and patches, as in BERT's and ViT's configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLayer:
    """Token embedding, plus a learned position table of ``positions`` rows (0: none).

    ``positions`` None is a learned table as long as the workload's sequence. ``token_types`` is
    the size of a table of segment vectors (BERT); ``norm`` follows the sum of all tables.
    """

    kind: Literal["embedding"] = "embedding"
    vocab: Count
    hidden: Count
    positions: Annotated[int, Field(ge=0)] | None = 0
    token_types: Annotated[int, Field(ge=0)] = 0
    norm: NormKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchLayer:
    """Image patches as tokens: projection, class token, learned positions.

    ``image`` and ``patch`` are side lengths in pixels; ``frames`` consecutive frames make one
    patch (video encoders). ``positions``: each token has a learned vector, of a table of
    ``position_rows`` (None: as many as tokens) that is stretched to the image (Qwen3-VL).
    """

    kind: Literal["patches"] = "patches"
    hidden: Count
    image: Count
    patch: Count
    channels: Count = 3
    frames: Count = 1
    class_token: bool = True
    positions: bool = True
    bias: bool = True
    norm: NormKind | None = None
    position_rows: Count | None = None

    @property
    def tokens(self) -> int:
        """Tokens of one image, class token counted."""
        side = self.image // self.patch
        return side * side + int(self.class_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayer:
    """Residual block: a token mixer, then a feed-forward part.

    Either may be missing.

    ``norm_placement`` pre: before each part; post: after each residual sum (BERT); after: after
    each part, before its sum (OLMo 2); sandwich: before and after each part (Gemma 2 and 3);
    stream: the residual stream itself before each part (MiniMax-01).
    ``parallel``: both parts read the block's input and are added to it together (GPT-NeoX), with
    ``shared_norm`` through one norm.
    ``cross_attention`` to another tower's output stands between the two (T5's decoder).
    """

    kind: Literal["block"] = "block"
    hidden: Count
    attention: Mixer | None
    mlp: FeedForward | None
    norm: NormKind = "rmsnorm"
    norm_eps: Epsilon = 1e-5
    norm_placement: Literal["pre", "post", "after", "sandwich", "stream"] = "pre"
    parallel: bool = False
    shared_norm: bool = False
    cross_attention: Attention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayer:
    """Final norm, projection to the vocabulary and the cross-entropy loss.

    ``norm`` None: the blocks end normalized. ``transform`` adds a dense layer with GELU and a
    norm before the projection (BERT's masked-language head). ``softcap`` bounds the logits.
    """

    kind: Literal["head"] = "head"
    hidden: Count
    vocab: Count
    norm: NormKind | None = "rmsnorm"
    norm_eps: Epsilon = 1e-5
    bias: bool = False
    transform: bool = False
    softcap: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTokenLayer:
    """Multi-token prediction, one token further ahead (DeepSeek-V3, arXiv:2412.19437, section 2.2).

    Projects the normalized hidden state and the normalized embedding of the next token to one,
    runs ``block``, and computes logits and loss with the model's own embedding and head weights,
    which count once. It stands between the last block and the head and hands the hidden state on
    unchanged.
    """

    kind: Literal["multi_token"] = "multi_token"
    hidden: Count
    vocab: Count
    block: BlockLayer
    norm: NormKind = "rmsnorm"
    norm_eps: Epsilon = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierLayer:
    """Final norm, projection of the first token, cross-entropy loss."""

    kind: Literal["classifier"] = "classifier"
    hidden: Count
    classes: Count
    norm: NormKind | None = "layernorm"
    norm_eps: Epsilon = 1e-5
    bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorLayer:
    """Map one tower's tokens to another's width: norm, GELU MLP.

    The mean of ``pool`` neighboring tokens becomes one before the norm (Gemma 3), ``merge``
    neighbors side by side after it, projected to ``merged`` channels where that is given (Mistral
    3). ``inner`` is the MLP's width, 0 for a single projection. ``further`` projectors of the same
    sizes, normed after merging, read earlier blocks (Qwen3-VL's DeepStack).
    """

    kind: Literal["projector"] = "projector"
    hidden: Count
    inner: Annotated[int, Field(ge=0)]
    out: Count
    merge: Count = 1
    norm: NormKind | None = None
    norm_eps: Epsilon = 1e-5
    bias: bool = True
    pool: Count = 1
    merged: Count | None = None
    further: Annotated[int, Field(ge=0)] = 0

    @property
    def tokens_per_output(self) -> int:
        """Tokens of the tower that become one."""
        return self.merge * self.pool


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLayer:
    """Norm after a headless tower's last block (T5, CLIP encoders)."""

    kind: Literal["norm"] = "norm"
    hidden: Count
    norm: NormKind = "rmsnorm"
    norm_eps: Epsilon = 1e-5


Layer = Annotated[
    EmbeddingLayer
    | PatchLayer
    | BlockLayer
    | HeadLayer
    | MultiTokenLayer
    | ClassifierLayer
    | ProjectorLayer
    | NormLayer,
    Field(discriminator="kind"),
]
"""A layer kind."""


def has_block(layer: Layer) -> bool:
    """True for layers that can recompute."""
    return isinstance(layer, (BlockLayer, MultiTokenLayer))
