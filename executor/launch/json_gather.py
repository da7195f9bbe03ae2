"""Small JSON values between ranks, as tensors of bytes: nothing is pickled."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from ..torch_compat import all_gather_single


def gather_json(value: Any, device: torch.device) -> list[Any]:
    """Every rank's ``value``, by rank, on every rank.

    Args:
        value: JSON-ready.
        device: of the world's collectives.
    """
    payload = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    size = torch.tensor([payload.numel()], dtype=torch.int64, device=device)
    sizes = torch.empty(dist.get_world_size(), dtype=torch.int64, device=device)
    all_gather_single(sizes, size)
    longest = int(sizes.max())
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: payload.numel()] = payload.to(device)
    every = torch.empty(longest * dist.get_world_size(), dtype=torch.uint8, device=device)
    all_gather_single(every, padded)
    rows = every.view(-1, longest).cpu().numpy()
    return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes.tolist(), strict=True)]
