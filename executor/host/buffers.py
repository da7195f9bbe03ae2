"""Host memory that copies from the device fill again and again."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from .tier import host_like


class HostBuffers:
    """Buffers by size; page-locked beside a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: dict[int, list[tuple[Tensor, torch.cuda.Event | None]]] = defaultdict(list)

    def take(self, size_bytes: int) -> Tensor:
        """A buffer of so many bytes, whose last contents have been read."""
        if not self._free[size_bytes]:
            wanted = torch.empty(size_bytes, dtype=torch.int8, device="meta")
            return host_like(wanted, self._device)
        buffer, read = self._free[size_bytes].pop()
        if read is not None:
            torch.cuda.current_stream(self._device).wait_event(read)
        return buffer

    def give_back(self, buffer: Tensor, read: torch.cuda.Event | None) -> None:
        """Let others fill a buffer, after an event."""
        self._free[buffer.numel()].append((buffer, read))


__all__ = ["HostBuffers"]
