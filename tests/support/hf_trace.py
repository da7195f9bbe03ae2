"""What a forward and backward pass of a torch module computes and saves, by module and op.

FLOPs are those of torch's own counter. It counts matrix products, convolutions and attention,
nothing else (no triangular solves). Two of its entries are replaced: the flash attention that
runs on a CPU is missing from its table and is counted by the formulas that it has for the same
operation on a GPU; the backward pass of a convolution of each channel on its own is counted as
if every channel fed every other one, and is twice its forward pass here.

Bytes are those of the distinct storages that autograd saves, parameters excepted. Each carries
the operation that made it and the module that was running, and the module that saved it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

INPUT = "input"
"""The ``op`` of storages that were there before the module ran."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One storage that a backward pass needs: what made it, where it was made and saved."""

    op: str
    made_in: str
    saved_in: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Trace:
    """FLOPs of both directions, and what is kept between them."""

    forward_flops: int
    backward_flops: int
    saved: tuple[Saved, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes of all saved storages."""
        return sum(item.size_bytes for item in self.saved)


def trace(module: torch.nn.Module, run: Callable[[], torch.Tensor]) -> Trace:
    """Run forward and backward once.

    Args:
        module: the module, whose parts name what is saved.
        run: its forward pass, from inputs that ask for gradients.
    """
    follower = _Follower(module)
    forward, backward = _counter(), _counter()
    with torch.autograd.graph.saved_tensors_hooks(follower.pack, lambda x: x), follower, forward:
        out = run()
    follower.detach()
    saved = tuple(follower.saved.values())
    with backward:
        out.backward(torch.ones_like(out))
    return Trace(
        forward_flops=forward.get_total_flops(),
        backward_flops=backward.get_total_flops(),
        saved=saved,
    )


class _Follower(TorchDispatchMode):
    """Remembers what made each storage, and what autograd saves."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.saved: dict[int, Saved] = {}
        self._made: dict[int, tuple[str, str]] = {}
        self._alive: list[torch.Tensor] = []  # so that no address is used twice
        self._running = [""]
        self._left_out = {p.untyped_storage()._cdata for p in module.parameters()}
        self._handles = [
            handle
            for name, part in module.named_modules()
            for handle in (
                part.register_forward_pre_hook(lambda *_, n=name: self._running.append(n)),
                part.register_forward_hook(lambda *_: self._leave()),
            )
        ]

    def _leave(self) -> None:
        self._running.pop()

    def detach(self) -> None:
        """Stop following the module."""
        for handle in self._handles:
            handle.remove()

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Hook: autograd saves ``tensor``."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._left_out and storage._cdata not in self.saved:
            op, made_in = self._made.get(storage._cdata, (INPUT, ""))
            self.saved[storage._cdata] = Saved(
                op=op,
                made_in=made_in,
                saved_in=self._running[-1],
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                size_bytes=storage.nbytes(),
            )
            self._alive.append(tensor)
        return tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note which storages an operation makes; views and in-place results are no new ones."""
        out = func(*args, **(kwargs or {}))
        inputs = {_storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        name = func._schema.name.partition("::")[2]
        for result in tree_leaves(out):
            if isinstance(result, torch.Tensor) and _storage(result) not in inputs:
                self._made[_storage(result)] = (name, self._running[-1])
        return out


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _counter() -> FlopCounterMode:
    aten = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: _flash,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _flash_backward,
            aten.convolution_backward: _convolution_backward,
        },
    )


def _flash(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _flash_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


def _convolution_backward(
    grad: Any, x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    """Gradients of input and weight: two FLOPs an output and a weight that feeds it, each."""
    products = sum(1 for gradient in out_shape[:2] if gradient is not None)
    fed = 2 * math.prod(grad) * math.prod(weight[1:])
    return products * fed
