"""What a forward and backward pass of a torch module computes and saves, by module and op.

FLOPs are those of torch's own counter. It counts matrix products, convolutions and attention,
nothing else (no triangular solves). Three operations are counted here: the flash attention that
runs on a CPU is missing from its table and gets the formulas that it has for the same operation
on a GPU; grouped products are missing, too; and of a convolution of each channel on its own it
counts the backward pass as if every channel fed every other one, which is twice the forward.

Bytes are those of the distinct storages that autograd saves, parameters excepted. Each carries
the operation that made it and the module that was running, and the module that saved it first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

INPUT = "input"
"""The ``op`` of storages that were there before the module ran."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One storage that a backward pass needs: what made it, where it was made and saved.

    ``shape`` is that of the first tensor saved of it; ``read_bytes`` are those of all of them.
    """

    op: str
    made_in: str
    saved_in: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    read_bytes: int


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
    saved = follower.saved()
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
        self._saved: dict[int, Saved] = {}
        self._views: dict[tuple[int, int, int], int] = {}
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

    def saved(self) -> tuple[Saved, ...]:
        """Everything saved, in order."""
        read: Counter[int] = Counter()
        for (storage, _, _), size_bytes in self._views.items():
            read[storage] += size_bytes
        return tuple(
            replace(item, read_bytes=min(read[storage], item.size_bytes))
            for storage, item in self._saved.items()
        )

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Hook: autograd saves ``tensor``."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._left_out:
            return tensor
        view = (storage._cdata, tensor.storage_offset(), tensor.numel())
        self._views[view] = tensor.numel() * tensor.element_size()
        if storage._cdata not in self._saved:
            op, made_in = self._made.get(storage._cdata, (INPUT, ""))
            self._saved[storage._cdata] = Saved(
                op=op,
                made_in=made_in,
                saved_in=self._running[-1],
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                size_bytes=storage.nbytes(),
                read_bytes=0,
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
            aten._grouped_mm: _grouped,
            aten.convolution_backward: _convolution_backward,
        },
    )


def _flash(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _flash_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


def _grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Rows of all groups (m, k) by (groups, k, n), or for weights (k, rows) by (rows, n)."""
    return 2 * math.prod(a) * b[-1]


def _convolution_backward(
    grad: Any, x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    """Gradients of input and weight: two FLOPs an output and a weight that feeds it, each."""
    products = sum(1 for gradient in out_shape[:2] if gradient is not None)
    fed = 2 * math.prod(grad) * math.prod(weight[1:])
    return products * fed
