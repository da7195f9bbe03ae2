"""Transfers between the host and a rank's device."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from .heap import return_freed_memory


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to ``device`` without waiting for its queue.

    A copy from pageable memory starts only when all earlier device work is done, so every read of
    tokens would drain the queue. From pinned memory it joins the queue.
    """
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def finish(device: torch.device) -> None:
    """Wait for the device's queued work; a core has none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Free unreferenced objects, cycles included, and the allocator's cached memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        return_freed_memory()
