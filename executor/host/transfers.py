"""Transfers between the host and a rank's device."""

from __future__ import annotations

import gc

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to ``device`` without waiting for its queue.

    A copy from ordinary memory begins when all earlier work of the device is done, so every read
    of tokens would drain the queue. From pinned memory it only joins the queue.
    """
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def finish(device: torch.device) -> None:
    """Wait until the device has finished its queued work; a core has none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Free the memory of unreferenced objects, cycles included, that the allocator keeps."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
