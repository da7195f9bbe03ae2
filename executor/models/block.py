"""A residual block: a token mixer, then a feed-forward part, each told by its spec's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...kernels import attention as kernels
from ...spec.dense import run_parts
from ...spec.feed_forward import Mlp, Moe
from ...spec.mixers import Attention, LatentAttention
from ...spec.model import BlockLayer
from .attention import attention_mixer
from .experts import mixture
from .latent import latent_mixer
from .layer import LayerBuild, LayerModule, again
from .mlp import mlp

RunPart = Callable[["Block", Any, Tensor], Tensor]
"""What a block adds by one of its parts: takes the block, the part's spec and its input."""

MIXERS: dict[type[Any], RunPart] = {
    Attention: attention_mixer,
    LatentAttention: latent_mixer,
}
FEED_FORWARDS: dict[type[Any], RunPart] = {Mlp: mlp, Moe: mixture}


class Block(LayerModule):
    """A pre-norm transformer block."""

    def __init__(self, layer: BlockLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer
        self.attention, self.mlp = run_parts(layer)
        self.recompute = build.recompute
        self.seq_len = build.seq_len
        self.sequence = build.sequence
        self.expert_ranks = build.experts
        self.attend = kernels.flash_attention if build.flash else kernels.unfused_attention
        self.body: Callable[[Block, Tensor], Tensor] = Block._run
        """What the block does; a technique may put another in its place."""

    def forward(self, x: Tensor) -> Tensor:
        """One block; ``full`` recomputation keeps only ``x``."""
        if self.recompute == "full":
            return again(self.body, self, x)
        return self.body(self, x)

    def _run(self, x: Tensor) -> Tensor:
        kind, eps = self.layer.norm, self.layer.norm_eps
        mix, feed = MIXERS[type(self.attention)], FEED_FORWARDS[type(self.mlp)]
        x = x + mix(self, self.attention, self.normed("attention_norm", kind, eps, x))
        return x + feed(self, self.mlp, self.normed("mlp_norm", kind, eps, x))


__all__ = ["FEED_FORWARDS", "MIXERS", "Block", "RunPart"]
