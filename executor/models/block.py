"""A residual block: token mixer, optional cross-attention, feed-forward.

The spec's type selects each sub-layer. Runs what ``shardwright.costmodel.layers.block`` prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from ...kernels.attention import attention as kernels
from ...spec.errors import InputError, NotBuiltError
from ...spec.model.feed_forward import Mlp, Moe
from ...spec.model.mixers import Attention, LatentAttention
from ...spec.model.model_spec import BlockLayer
from ...spec.recomputation import kept_results, recomputes_block
from ...spec.rules.executable import RUN_MODELS, unsupported_block
from .attention import attention_mixer, cross_attention
from .core_attention import core_attention
from .document_attention import DocumentEnds, of_documents
from .latent_attention import latent_attention
from .layer import LayerBuild, LayerModule
from .mlp import mlp
from .moe.chunk_way import ChunkedExperts
from .moe.mixture import mixture
from .moe.router import RouterState
from .positions import score_bias
from .saved_results import SavedResults
from .shared_parts import shared_parts, shares

RunSubLayer = Callable[["Block", Any, Tensor], Tensor]
"""Output of a sub-layer from the block, the sub-layer's spec and its input."""

MIXERS: dict[type[Any], RunSubLayer] = {
    Attention: attention_mixer,
    LatentAttention: latent_attention,
}
FEED_FORWARDS: dict[type[Any], RunSubLayer] = {Mlp: mlp, Moe: mixture}

SubLayer = tuple[str, Callable[[Tensor], Tensor]]
"""A sub-layer bound to all but its input, and the name of its norms."""


class Block(LayerModule):
    """A transformer block.

    Raises:
        NotBuiltError: a block type that does not run.
        InputError: flash attention where score biases are learned.
    """

    def __init__(self, layer: BlockLayer, build: LayerBuild) -> None:
        super().__init__(build)
        if reason := unsupported_block(layer):
            raise NotBuiltError(reason, f"run {RUN_MODELS}")
        if build.flash and _learns_bias(layer):
            allowed = "unfused for a model that learns biases of scores (T5): no flash kernel does"
            raise InputError("--attention", "flash", allowed, "unfused")
        self.layer = layer
        self.attention, self.mlp = layer.attention, layer.mlp
        self.recompute = build.recompute
        kept = kept_results(layer, build.recompute, sums=build.tp.size > 1)
        if build.sequence.ring is not None or not build.flash:
            kept -= {"attention"}  # of several operations: none is kept
        self.results = SavedResults(kept)
        self.seq_len = build.seq_len
        self.sequence = build.sequence
        self.expert_ranks = build.experts
        self.chunked_experts: ChunkedExperts | None = None
        """Experts' rows in chunks, where a technique cuts them."""
        self.router_state: RouterState | None = None
        """Means of routing beside its logits; the engine sets them."""
        self.routed: Callable[[Tensor], None] | None = None
        """Told the ends of each expert's rows, where a trace of the routing is written."""
        self.attend: Callable[..., Tensor] = (
            kernels.flash_attention if build.flash else kernels.unfused_attention
        )
        self.core = core_attention
        """Core attention of the mixer; a technique may replace it."""
        self.body: Callable[..., Any] = Block._run
        """The block's computation; a technique may replace it."""
        self.documents: DocumentEnds | None = None
        """Of the next samples, where they do not see one another; the engine sets them."""

    def forward(self, x: Tensor, source: Tensor | None = None, bias: Tensor | None = None) -> Any:
        """Run the block; recomputation keeps its inputs and named results.

        ``x`` is (seq, batch, hidden); ``source``, another tower's output; ``bias``, of relative
        positions from an earlier block.

        Returns:
            Like ``x``; and the bias, if made here.
        """
        inputs = (x, source, bias)[: 3 if bias is not None else 2 if source is not None else 1]
        body = self.body if self.documents is None else of_documents(self.body, self.documents)
        if recomputes_block(self.recompute):
            return self.results.recomputed(body, self, *inputs)
        return body(self, *inputs)

    def given(self, read: tuple[Tensor, ...], bias: Tensor | None) -> tuple[Tensor | None, ...]:
        """Inputs beside the activations: another tower's output, a shared bias."""
        shares = isinstance(self.attention, Attention) and self.attention.shared_bias
        if shares and bias is None:
            raise RuntimeError("no block before this one made the bias of its tower")
        return (*(read or (None,)), bias) if shares else read

    @property
    def makes_bias(self) -> bool:
        """True if later blocks of the tower share this block's bias."""
        return isinstance(self.attention, Attention) and self.attention.relative_buckets > 0

    def _run(self, x: Tensor, source: Tensor | None = None, bias: Tensor | None = None) -> Any:
        spec = self.attention
        if isinstance(spec, Attention) and self.makes_bias:
            table, tokens = self.slot("relative").weight, self.seq_len
            bias = score_bias(table, tokens, tokens, spec.mask == "full")
        out = self._run_sublayers(x, list(self._sublayers(source, bias)))
        return (out, bias) if self.makes_bias else out

    def _sublayers(self, source: Tensor | None, bias: Tensor | None) -> Iterator[SubLayer]:
        mix, feed = MIXERS[type(self.attention)], FEED_FORWARDS[type(self.mlp)]
        extra: dict[str, Any] = {} if bias is None else {"bias": bias}
        yield "attention", partial(mix, self, self.attention, **extra)
        if (cross := self.layer.cross_attention) is not None:
            if source is None:
                raise RuntimeError("a block with cross-attention needs another tower's output")
            yield "cross", lambda x: cross_attention(self, cross, x, source)
        yield "mlp", partial(feed, self, self.mlp)

    def _run_sublayers(self, x: Tensor, sublayers: list[SubLayer]) -> Tensor:
        placement = self.layer.norm_placement
        if self.layer.parallel:
            return self._in_parallel(x, sublayers)
        for name, run in sublayers:
            if placement == "post":
                x = self._norm(name, x + run(x))
            elif placement == "after":
                x = x + self._norm(f"{name}_post", run(x))
            elif placement == "sandwich":
                x = x + self._norm(f"{name}_post", run(self._norm(name, x)))
            else:
                x = x + run(self._norm(name, x))
        return x

    def _in_parallel(self, x: Tensor, sublayers: list[SubLayer]) -> Tensor:
        """All sub-layers read the block's input (Wang and Komatsuzaki, 2021, GPT-J)."""
        first = sublayers[0][0]
        if shares(self):
            return x + shared_parts(self, self._norm(first, x))
        shared = self._norm(first, x) if self.layer.shared_norm else None
        outputs = [
            run(self._norm(name, x) if shared is None else shared) for name, run in sublayers
        ]
        for out in outputs:
            x = x + out
        return x

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return self.apply_norm(f"{name}_norm", self.layer.norm, self.layer.norm_eps, x)


def _learns_bias(layer: BlockLayer) -> bool:
    spec = layer.attention
    return isinstance(spec, Attention) and (spec.relative_buckets > 0 or spec.shared_bias)


__all__ = ["FEED_FORWARDS", "MIXERS", "Block", "RunSubLayer"]
