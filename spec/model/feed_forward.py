"""Feed-forward parts of a block, which work on each token alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, Tag

from .mixers import Count, kind_or

Activation = Literal[
    "gelu",
    "gelu_tanh",
    "quick_gelu",
    "relu",
    "relu2",
    "swiglu",
    "geglu",
    "geglu_tanh",
    "clamped_swiglu",
]
GATED: tuple[Activation, ...] = ("swiglu", "geglu", "geglu_tanh", "clamped_swiglu")
"""Activations of two projections, one of which gates the other (Shazeer, arXiv:2002.05202)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Multi-layer perceptron; gated activations add a gate projection."""

    ffn: Count
    activation: Activation = "swiglu"
    bias: bool = False

    @property
    def gated(self) -> bool:
        """True if there is a gate projection beside the up projection."""
        return self.activation in GATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of ``experts``, ``topk`` for each token (Shazeer, arXiv:1701.06538).

    ``ffn`` is the width of one expert, ``shared_ffn`` that of all shared experts together (0:
    none), which every token passes; ``shared_gate`` scales their output by a learned sigmoid
    (Qwen2-MoE). At most ``groups_per_token`` of the ``groups`` of experts serve a token
    (DeepSeek-V2, section 2.2.2). ``capacity_factor`` limits each expert to that multiple of its
    even share; None drops no token. ``latent`` is the width that tokens are projected to around
    the experts (None: the hidden width). ``weigh`` inputs: a token's weights, which then do not
    sum to 1, scale what its experts take in, not what they give out (Llama 4).
    """

    kind: Literal["moe"] = "moe"
    experts: Count
    topk: Count
    ffn: Count
    activation: Activation = "swiglu"
    bias: bool = False
    shared_ffn: Annotated[int, Field(ge=0)] = 0
    shared_gate: bool = False
    router_bias: bool = False
    score: Literal["softmax", "sigmoid"] = "softmax"
    groups: Count = 1
    groups_per_token: Count = 1
    capacity_factor: Annotated[float, Field(gt=0)] | None = None
    latent: Count | None = None
    weigh: Literal["outputs", "inputs"] = "outputs"

    @property
    def gated(self) -> bool:
        """True if each expert has a gate projection."""
        return self.activation in GATED


def group_votes(moe: Moe) -> int:
    """Number of a group's top experts that make its score.

    One with softmax (DeepSeek-V2, section 2.2.2), two with sigmoid (DeepSeek-V3,
    arXiv:2412.19437, section 2.1.2) where a group has two.
    """
    return min(2, moe.experts // moe.groups) if moe.score == "sigmoid" else 1


FeedForward = Annotated[Annotated[Mlp, Tag("mlp")] | Annotated[Moe, Tag("moe")], kind_or("mlp")]
"""A feed-forward part; a plain MLP is written without a ``kind``."""
