"""What every layer of a model is made of: named places for its parameters, and what it is given.

Activations are (seq, batch, hidden).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...kernels import norm
from ...kernels.dispatch import Dispatcher
from ...kernels.marks import mark
from ...spec.choices import Recompute
from ...spec.marks import RECOMPUTE
from .parallel import TensorParallel


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuild:
    """What a layer is built with: its ranks, its kernels and what was decided for it.

    ``flash``: core attention is the flash kernel; ``seq_len``: tokens of a sample.
    """

    tp: TensorParallel
    kernels: Dispatcher
    recompute: Recompute
    flash: bool
    seq_len: int


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

    def __init__(self, build: LayerBuild) -> None:
        super().__init__()
        self.tp = build.tp
        self.kernels = build.kernels

    def slot(self, name: str) -> Slot:
        """The child called ``name``, made on first use."""
        if name not in self._modules:
            self.add_module(name, Slot())
        child = self._modules[name]
        if not isinstance(child, Slot):
            raise TypeError(f"{name} is not a parameter slot")
        return child

    def holder(self, name: str) -> tuple[nn.Module, str]:
        """Where the parameter of this name lives: a slot, or the layer, and its name there."""
        slot, _, kind = name.rpartition(".")
        return (self.slot(slot) if slot else self), kind

    def weights(self, *names: str) -> list[Tensor]:
        """The weights of these slots."""
        return [self.slot(name).weight for name in names]

    def biases(self, *names: str) -> list[Tensor]:
        """The biases of these slots; empty where they have none."""
        return [b for name in names if (b := self.slot(name).bias) is not None]

    def normed(self, name: str, kind: str, eps: float, x: Tensor) -> Tensor:
        """``x`` through the norm whose parameters are in slot ``name``."""
        slot = self.slot(name)
        if kind == "rmsnorm" or slot.bias is None:
            return norm.rms_norm(self.kernels, x, slot.weight, eps)
        return norm.layer_norm(x, slot.weight, slot.bias, eps)


def iter_slots(module: LayerModule) -> Iterator[tuple[str, Slot]]:
    """Every parameter slot of a layer with its name."""
    for name, child in module.named_children():
        if isinstance(child, Slot):
            yield name, child


def again(function: object, *inputs: object) -> Any:
    """Run now, keep only the inputs, run again in the backward pass."""
    return checkpoint(
        function,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=_contexts,
    )


def _contexts() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """What the first run and the second one happen in: the second is marked in traces."""
    return nullcontext(), mark(RECOMPUTE)


__all__ = ["LayerBuild", "LayerModule", "Slot", "again", "iter_slots"]
