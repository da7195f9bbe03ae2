"""The layers of dense decoders as torch modules; activations are (seq, batch, hidden)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ....kernels import activation, attention, norm
from ....kernels.cross_entropy import cross_entropy
from ....kernels.dispatch import Dispatcher
from ....kernels.linear_cross_entropy import LINEAR_CROSS_ENTROPY, linear_cross_entropy
from ....kernels.marks import mark
from ....kernels.rope import Angles, apply_rope
from ....spec.dense import dense_parts
from ....spec.errors import NotBuiltError
from ....spec.marks import RECOMPUTE
from ....spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from ....spec.parameters import split_range
from ..adapters import Adapter, frozen_column, frozen_row
from ..parallel import TensorParallel, column_linear, embedding, row_linear


class Slot(nn.Module):
    """A named place for a weight and perhaps a bias; it computes nothing itself."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)


class LayerModule(nn.Module):
    """A layer of the model whose parameters live in :class:`Slot` children."""

    def __init__(self, tp: TensorParallel, kernels: Dispatcher) -> None:
        super().__init__()
        self.tp = tp
        self.kernels = kernels
        self.adapter_scale = 0.0
        """What adapters beside the weights are multiplied with."""

    def slot(self, name: str) -> Slot:
        """The child called ``name``, made on first use."""
        if name not in self._modules:
            self.add_module(name, Slot())
        child = self._modules[name]
        if not isinstance(child, Slot):
            raise TypeError(f"{name} is not a parameter slot")
        return child

    def weights(self, *names: str) -> list[Tensor]:
        """The weights of these slots."""
        return [self.slot(name).weight for name in names]

    def biases(self, *names: str) -> list[Tensor]:
        """The biases of these slots; empty where they have none."""
        return [b for name in names if (b := self.slot(name).bias) is not None]

    def column(self, x: Tensor, *names: str) -> tuple[Tensor, ...]:
        """Projections of one input by these slots, split along their outputs."""
        weights, biases = self.weights(*names), self.biases(*names)
        if weights[0].requires_grad:
            return column_linear(x, weights, biases, self.tp)
        beside = [self._adapter(name) for name in names]
        return frozen_column(x, weights, biases, beside, self.tp)

    def row(self, x: Tensor, name: str) -> Tensor:
        """A projection by this slot, split along its inputs."""
        slot = self.slot(name)
        if slot.weight.requires_grad:
            return row_linear(x, slot.weight, slot.bias, self.tp)
        return frozen_row(x, slot.weight, slot.bias, self._adapter(name), self.tp)

    def _adapter(self, name: str) -> Adapter | None:
        """What stands beside a slot's frozen weight."""
        slot = self.slot(name)
        a, b = getattr(slot, "adapter_a", None), getattr(slot, "adapter_b", None)
        return None if a is None or b is None else Adapter(a, b, self.adapter_scale)

    def _norm(self, name: str, kind: str, eps: float, x: Tensor) -> Tensor:
        slot = self.slot(name)
        if kind == "rmsnorm" or slot.bias is None:
            return norm.rms_norm(self.kernels, x, slot.weight, eps)
        return norm.layer_norm(x, slot.weight, slot.bias, eps)


class Embedding(LayerModule):
    """Tokens (seq, batch) to activations."""

    def __init__(self, layer: EmbeddingLayer, tp: TensorParallel, kernels: Dispatcher) -> None:
        super().__init__(tp, kernels)
        self.vocab_start = split_range(layer.vocab, tp.size, tp.rank)[0]

    def forward(self, tokens: Tensor) -> Tensor:
        """Token and position vectors."""
        positions = self.slot("positions").weight if "positions" in self._modules else None
        return embedding(tokens, self.slot("tokens").weight, positions, self.vocab_start, self.tp)


class Block(LayerModule):
    """A pre-norm transformer block."""

    def __init__(
        self,
        layer: BlockLayer,
        tp: TensorParallel,
        kernels: Dispatcher,
        recompute: str,
        flash: bool,
        seq_len: int,
    ) -> None:
        super().__init__(tp, kernels)
        self.layer = layer
        self.attention, self.mlp = dense_parts(layer)
        self.recompute = recompute
        self.angles = Angles(seq_len, self.attention.head_dim, self.attention.rope_theta)
        self.attend = attention.flash_attention if flash else attention.unfused_attention
        self.body: Callable[[Block, Tensor], Tensor] = Block._run
        """What the block does; a technique may put another in its place."""

    def forward(self, x: Tensor) -> Tensor:
        """One block; ``full`` recomputation keeps only ``x``."""
        if self.recompute == "full":
            return again(self.body, self, x)
        return self.body(self, x)

    def _run(self, x: Tensor) -> Tensor:
        kind, eps = self.layer.norm, self.layer.norm_eps
        x = x + self._attention(self._norm("attention_norm", kind, eps, x))
        return x + self._mlp(self._norm("mlp_norm", kind, eps, x))

    def _attention(self, x: Tensor) -> Tensor:
        names = ("query", "key", "value")
        mixed = self._core(*self.column(x, *names))
        return self.row(mixed, "output")

    def _core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = self._normed("query_norm", query), self._normed("key_norm", key)
        if self.attention.rotary:
            query, key = apply_rope(self.kernels, query, key, self.angles)
        value = self._heads(value)
        if self.recompute == "selective":
            return again(self.attend, query, key, value)
        return self.attend(query, key, value)

    def _heads(self, x: Tensor) -> Tensor:
        out: Tensor = x.unflatten(  # type: ignore[no-untyped-call]
            -1, (-1, self.attention.head_dim)
        )
        return out

    def _normed(self, norm_name: str, x: Tensor) -> Tensor:
        """Split into heads, which Qwen3 normalises."""
        x = self._heads(x)
        if not self.attention.qk_norm:
            return x
        return norm.rms_norm(self.kernels, x, self.slot(norm_name).weight, self.layer.norm_eps)

    def _mlp(self, x: Tensor) -> Tensor:
        return self.row(self._activated(x), "down")

    def _activated(self, x: Tensor) -> Tensor:
        mlp = self.mlp
        names = ("gate", "up") if mlp.gated else ("up",)
        projected = self.column(x, *names)
        if mlp.gated:
            return activation.swiglu(self.kernels, *projected)
        return activation.gelu(projected[0], tanh=mlp.activation == "gelu_tanh")


def again(function: object, *inputs: object) -> Tensor:
    """Run now, keep only the inputs, run again in the backward pass."""
    out: Tensor = checkpoint(
        function,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=_contexts,
    )
    return out


def _contexts() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """What the first run and the second one happen in: the second is marked in traces."""
    return nullcontext(), mark(RECOMPUTE)


class Head(LayerModule):
    """Final norm, projection to the vocabulary, loss."""

    def __init__(self, layer: HeadLayer, tp: TensorParallel, kernels: Dispatcher) -> None:
        super().__init__(tp, kernels)
        self.layer = layer
        self.vocab_start = split_range(layer.vocab, tp.size, tp.rank)[0]

    def forward(self, x: Tensor, targets: Tensor | None, scale: float) -> Tensor:
        """``scale`` times the sum of the losses of ``targets`` (seq, batch).

        Without targets: the logits of this rank's part of the vocabulary.
        """
        if self.layer.norm is not None:
            x = self._norm("norm", self.layer.norm, self.layer.norm_eps, x)
        (weight,) = self.weights("projection")
        fuses = self.tp.size == 1 and self.kernels.fuses(LINEAR_CROSS_ENTROPY, x)
        if fuses and weight.requires_grad and targets is not None:
            return linear_cross_entropy(self.kernels, x, weight, targets, scale, is_root=True)
        (logits,) = self.column(x, "projection")
        del x  # nothing needs it where the projection is frozen
        if targets is None:
            return logits
        group = self.tp.group if self.tp.size > 1 else None
        return cross_entropy(logits.flatten(0, 1), targets, scale, self.vocab_start, group)


def build_layer(
    layer: Layer,
    tp: TensorParallel,
    kernels: Dispatcher,
    recompute: str,
    flash: bool,
    seq_len: int,
) -> LayerModule:
    """The module of one layer, its parameters still missing."""
    if isinstance(layer, EmbeddingLayer):
        return Embedding(layer, tp, kernels)
    if isinstance(layer, HeadLayer):
        return Head(layer, tp, kernels)
    if isinstance(layer, BlockLayer):
        return Block(layer, tp, kernels, recompute, flash, seq_len)
    raise NotBuiltError(f"a {layer.kind} layer is planned but not run yet", "run a dense decoder")


def iter_slots(module: LayerModule) -> Iterator[tuple[str, Slot]]:
    """Every parameter slot of a layer with its name."""
    for name, child in module.named_children():
        if isinstance(child, Slot):
            yield name, child


__all__ = [
    "Block",
    "Embedding",
    "Head",
    "LayerModule",
    "Slot",
    "again",
    "build_layer",
    "iter_slots",
]
