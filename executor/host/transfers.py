"""Between the host and a rank's device: data on its way, and waiting for it."""

from __future__ import annotations

import gc

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on ``device``; the host does not wait for what is queued there.

    From ordinary memory a copy would: it begins when all earlier work of the device is done, so
    every read of tokens would drain the queue. From pinned memory it only joins the queue.
    """
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def finish(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it; nothing to wait for on a core."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give back the memory of what nothing refers to, cycles too, that the allocator keeps."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
