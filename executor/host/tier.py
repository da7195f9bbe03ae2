"""Tensors that a run keeps in the memory of the host, told apart from those of its device.

Where the device is a core both lie in one memory, and nothing of a tensor says which it is. So
tensors of the host are made here and remembered: bytes are counted on the tier that they are on,
and copies between the tiers are recorded as what they are on any device.
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
    """A tensor of the host with the shape and type of ``tensor``, contiguous.

    Args:
        tensor: on any tier.
        device: of the run; the host's side of copies to and from a CUDA device is page-locked.
        zero: whether it is filled with zeros; else what is in it is unsaid.
    """
    pinned = device.type == "cuda"
    with _making():
        make = torch.zeros if zero else torch.empty
        made = make(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    _remember(made)
    return made


def host_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host with the numbers of ``tensor``; as :func:`host_like`."""
    made = host_like(tensor, device)
    made.copy_(tensor)
    return made


def on_host(tensor: Tensor) -> bool:
    """Whether a tensor is one of the host's."""
    return bool(_STORAGES) and tensor.untyped_storage()._cdata in _STORAGES


def is_allocating() -> bool:
    """Whether what is made just now is for the host."""
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
