"""Consistency of ranks on several machines, checked before training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...spec.errors import RunError
from ..torch_compat import all_gather_single

SAMPLES = 32
"""Samples that stand for the text: windows drawn from all of it."""


def gather_json(value: Any, device: torch.device) -> list[Any]:
    """Every rank's JSON ``value``, by rank, on every rank; no pickling.

    ``device``: of the world's collectives.
    """
    payload = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    size = torch.tensor([payload.numel()], dtype=torch.int64, device=device)
    sizes = torch.empty(dist.get_world_size(), dtype=torch.int64, device=device)
    all_gather_single(sizes, size)
    longest = int(sizes.max())
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: payload.numel()] = payload.to(device)
    gathered = torch.empty(longest * dist.get_world_size(), dtype=torch.uint8, device=device)
    all_gather_single(gathered, padded)
    rows = gathered.view(-1, longest).cpu().numpy()
    return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes.tolist(), strict=True)]


def require_consistency(facts: Mapping[str, str], device: torch.device) -> None:
    """Refuse to train where a rank's facts differ from rank 0's. Collective.

    ``facts`` are by their names in errors.

    Raises:
        RunError: the first fact and rank that differ; the same on every rank.
    """
    check_consistency([dict(rank_facts) for rank_facts in gather_json(dict(facts), device)])


def check_consistency(facts_by_rank: Sequence[Mapping[str, str]]) -> None:
    """Compare all ranks' facts with rank 0's.

    Raises:
        RunError: one differs.
    """
    for name, value in facts_by_rank[0].items():
        for rank, facts in enumerate(facts_by_rank):
            if facts.get(name) != value:
                raise RunError(
                    f"rank {rank} has another {name} than rank 0: {facts.get(name)}, not {value}; "
                    "every node needs the same"
                )


def text_digest(batch: Callable[[int, int], Tensor], global_batch: int) -> str:
    """Digest of a run's text: some (seq + 1,) samples of ``batch``."""
    stride = max(1, global_batch // SAMPLES)
    digest = hashlib.sha256()
    for sample in range(0, global_batch, stride):
        digest.update(batch(0, sample).numpy().tobytes())
    return digest.hexdigest()[:12]
