"""Base of all layer modules: named parameter slots and build arguments.

Activations are (seq, batch, hidden).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ...kernels.dense import norm
from ...kernels.dispatch import Dispatcher
from ...spec.choices import Recompute
from .linear.replicated_linear import replicated_linear
from .lora import LoraAdapter, lora_column_linear, lora_row_linear
from .moe.dispatch import NO_EXPERT_PARALLEL, ExpertRanks
from .saved_results import NOT_KEPT, NamedResult, SavedResults
from .sequence_split import SequenceSplit
from .tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel, column_linear, row_linear

if TYPE_CHECKING:
    from .linear.overlapped_linear import OverlappedLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuild:
    """Build arguments of a layer: its ranks, kernels and strategy.

    ``flash``: core attention is the flash kernel; ``sequence``: tokens on this rank; ``seq_len``:
    tokens of a sample; ``experts``: ranks with experts.
    """

    tp: TensorParallel
    kernels: Dispatcher
    recompute: Recompute
    flash: bool
    seq_len: int
    sequence: SequenceSplit
    experts: ExpertRanks = NO_EXPERT_PARALLEL


class Slot(nn.Module):
    """A named holder of a weight and an optional bias, without computation."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)


class LayerModule(nn.Module):
    """A layer whose parameters live in :class:`Slot` children."""

    def __init__(self, build: LayerBuild) -> None:
        super().__init__()
        self.tp = build.tp
        self.kernels = build.kernels
        self.results = NOT_KEPT
        self.overlapped: OverlappedLinear | None = None
        """Split products beside their collectives, where a technique makes them."""
        self.adapter_scale = 0.0
        """Factor on the products of LoRA adapters."""

    def slot(self, name: str) -> Slot:
        """The child called ``name``, made on first use."""
        if name not in self._modules:
            self.add_module(name, Slot())
        child = self._modules[name]
        if not isinstance(child, Slot):
            raise TypeError(f"{name} is not a parameter slot")
        return child

    def holder(self, name: str) -> tuple[nn.Module, str]:
        """Module that holds a named parameter, and its name there."""
        slot, _, kind = name.rpartition(".")
        return (self.slot(slot) if slot else self), kind

    def weights(self, *names: str) -> list[Tensor]:
        """Weights of these slots."""
        return [self.slot(name).weight for name in names]

    def biases(self, *names: str) -> list[Tensor]:
        """Biases of these slots; empty without any."""
        return [b for name in names if (b := self.slot(name).bias) is not None]

    def column(self, x: Tensor, *names: str) -> tuple[Tensor, ...]:
        """Projections of one input by these slots, split along outputs."""
        weights = self.weights(*names)
        if weights[0].requires_grad:
            linear = column_linear if self.overlapped is None else self.overlapped.column
            biases = [self.slot(name).bias for name in names]
            return linear(x, weights, biases, self.tp, NamedResult(self.results, names))
        adapters = [self._adapter(name) for name in names]
        return lora_column_linear(x, weights, self.biases(*names), adapters, self.tp)

    def row(self, x: Tensor, name: str) -> Tensor:
        """A projection by this slot, split along inputs."""
        slot = self.slot(name)
        if slot.weight.requires_grad:
            return self.summed_rows((x, name))
        return lora_row_linear(x, slot.weight, slot.bias, self._adapter(name), self.tp)

    def summed_rows(self, *projected: tuple[Tensor, str]) -> Tensor:
        """Sum of projections by trained slots, split along inputs; kept if one is named."""
        names = [name for _, name in projected]
        named = next((name for name in names if name in self.results.names), names[0])
        kept = NamedResult(self.results, (named,))
        linear = row_linear if self.overlapped is None else self.overlapped.row
        biases = [self.slot(name).bias for name in names]
        return linear([x for x, _ in projected], self.weights(*names), biases, self.tp, kept)

    def replicated(self, x: Tensor, name: str) -> Tensor:
        """An unsplit projection by this slot."""
        slot = self.slot(name)
        if slot.weight.requires_grad:
            named = NamedResult(self.results, (name,))
            return replicated_linear(x, slot.weight, slot.bias, self.tp.deferred, named)
        (out,) = lora_column_linear(
            x, [slot.weight], self.biases(name), [self._adapter(name)], NO_TENSOR_PARALLEL
        )
        return out

    def _adapter(self, name: str) -> LoraAdapter | None:
        slot = self.slot(name)
        a, b = getattr(slot, "adapter_a", None), getattr(slot, "adapter_b", None)
        return None if a is None or b is None else LoraAdapter(a, b, self.adapter_scale)

    def apply_norm(self, name: str, kind: str, eps: float, x: Tensor) -> Tensor:
        """``x`` through the norm in slot ``name``."""
        slot = self.slot(name)
        if kind == "rmsnorm" or slot.bias is None:
            return norm.rms_norm(self.kernels, x, slot.weight, eps)
        return norm.layer_norm(x, slot.weight, slot.bias, eps)


def iter_slots(module: LayerModule) -> Iterator[tuple[str, Slot]]:
    """Parameter slots of a layer with their names."""
    for name, child in module.named_children():
        if isinstance(child, Slot):
            yield name, child


def recomputed(function: object, *inputs: object) -> Any:
    """Run now keeping only the inputs, and rerun in the backward pass."""
    return SavedResults().recomputed(function, *inputs)


__all__ = ["LayerBuild", "LayerModule", "Slot", "iter_slots", "recomputed"]
