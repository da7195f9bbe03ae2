"""Tensors in host memory, told apart from the device's.

On a core both share one memory, and tensors do not say which it is. So host tensors are made here
and remembered, to count bytes by tier and record copies between tiers as on any device.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_STORAGES: set[int] = set()
_MAKING: list[bool] = []


def host_like(tensor: Tensor, device: torch.device, zero: bool = False) -> Tensor:
    """A contiguous host tensor with the shape and type of ``tensor``.

    Page-locked beside a CUDA ``device``; uninitialized unless ``zero``.
    """
    pinned = device.type == "cuda"
    with _making():
        make = torch.zeros if zero else torch.empty
        host_tensor = make(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    _remember(host_tensor)
    return host_tensor


def host_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """A host copy of ``tensor``; see :func:`host_like`."""
    host_tensor = host_like(tensor, device)
    host_tensor.copy_(tensor)
    return host_tensor


def on_host(tensor: Tensor) -> bool:
    """True if a tensor was made for the host."""
    return bool(_STORAGES) and tensor.untyped_storage()._cdata in _STORAGES


def is_allocating() -> bool:
    """True during an allocation for the host."""
    return bool(_MAKING)


@contextmanager
def _making() -> Iterator[None]:
    _MAKING.append(True)
    try:
        yield
    finally:
        _MAKING.pop()


def _remember(tensor: Tensor) -> None:
    storage = tensor.untyped_storage()
    _STORAGES.add(storage._cdata)
    weakref.finalize(storage, _STORAGES.discard, storage._cdata)


__all__ = ["host_copy", "host_like", "is_allocating", "on_host"]
