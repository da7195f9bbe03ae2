"""Feed-forward parts of a block, which work on each token alone."""

from __future__ import annotations

import math
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


Coefficient = Annotated[float, Field(ge=0)]
Gate = Literal["topk", "switch", "gshard", "xmoe", "soft", "expert_choice"]
BALANCED_GATES: tuple[Gate, ...] = ("soft", "expert_choice")
"""Gates that give every expert as many rows as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Means that spread tokens evenly over experts; a coefficient of 0 is off.

    ``aux_loss``: of experts · sum over experts of their share of assignments times their mean score
    (Fedus, arXiv:2101.03961, section 2.2), ``per`` group (the tokens that a rank routes at once) or
    sequence. ``z_loss``: of the mean squared log-sum-exp of logits (Zoph, arXiv:2202.08906, section
    3.2). ``bias_rate``: step of a bias on the scores that choose, towards experts with too few
    tokens (DeepSeek-V3, arXiv:2412.19437, section 2.1.2). ``jitter``: half-width of a uniform
    factor around 1 on what the router reads, or on the layer's input (Mixtral's class).
    """

    aux_loss: Coefficient = 0.0
    per: Literal["group", "sequence"] = "group"
    z_loss: Coefficient = 0.0
    bias_rate: Coefficient = 0.0
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.0
    jitters: Literal["router", "input"] = "router"

    @property
    def has_loss(self) -> bool:
        """True if a loss is added to the language model's."""
        return self.aux_loss > 0 or self.z_loss > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of ``experts``, ``topk`` for each token (Shazeer, arXiv:1701.06538).

    ``ffn`` is the width of one expert, ``shared_ffn`` that of all shared experts together (0:
    none), which every token passes; ``shared_gate`` scales their output by a learned sigmoid
    (Qwen2-MoE). At most ``groups_per_token`` of the ``groups`` of experts serve a token
    (DeepSeek-V2, section 2.2.2). ``capacity_factor`` limits each expert to that multiple of its
    even share of a rank's tokens, kept in ``capacity_order``; None drops no token. ``latent`` is
    the width that tokens are projected to around the experts (None: the hidden width). ``weigh``
    inputs: a token's weights, which then do not sum to 1, scale what its experts take in, not what
    they give out (Llama 4).

    ``gate``: the ``topk`` best scores; Switch (one expert, by its own score); GShard
    (arXiv:2006.16668, section 2.2: the second of two kept by chance); X-MoE (arXiv:2204.09179: by
    cosine in ``gate_width``); SoftMoE (arXiv:2308.00951: ``slots`` of each expert mix a sequence);
    or expert choice (arXiv:2202.09368: experts choose, ``topk`` times their even share each).
    ``normalize``: a token's weights sum to 1.
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
    gate: Gate = "topk"
    gate_width: Count | None = None
    slots: Count = 1
    capacity_order: Literal["position", "probability"] = "position"
    normalize: bool = True
    balance: Balance | None = None

    @property
    def gated(self) -> bool:
        """True if each expert has a gate projection."""
        return self.activation in GATED

    @property
    def normalizes(self) -> bool:
        """True if a token's weights are made to sum to 1."""
        plain = self.gate == "gshard" or (self.gate == "topk" and self.normalize)
        return plain and self.weigh == "outputs"

    @property
    def fills_rows(self) -> bool:
        """True if each expert gets as many rows as any other, known beforehand."""
        return self.capacity_factor is not None or self.gate in BALANCED_GATES

    @property
    def router_outputs(self) -> int:
        """Logits of a token."""
        return self.experts * (self.slots if self.gate == "soft" else 1)


def expert_capacity(moe: Moe, tokens: int) -> int:
    """Rows of each expert from a rank's ``tokens``, where the number is fixed.

    An expert has at most one of a token.
    """
    factor = 1.0 if moe.capacity_factor is None else moe.capacity_factor
    return min(tokens, math.ceil(tokens * moe.topk * factor / moe.experts))


def group_votes(moe: Moe) -> int:
    """Number of a group's top experts that make its score.

    One with softmax (DeepSeek-V2, section 2.2.2), two with sigmoid (DeepSeek-V3,
    arXiv:2412.19437, section 2.1.2) where a group has two.
    """
    return min(2, moe.experts // moe.groups) if moe.score == "sigmoid" else 1


FeedForward = Annotated[Annotated[Mlp, Tag("mlp")] | Annotated[Moe, Tag("moe")], kind_or("mlp")]
"""A feed-forward part; a plain MLP is written without a ``kind``."""
