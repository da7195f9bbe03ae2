"""Ranks on several machines start from files of their own; before they train, these must agree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ...spec.errors import RunError
from .json_gather import gather_json

SAMPLES = 32
"""Samples that stand for the text: windows drawn from all of it."""


def require_consistency(facts: Mapping[str, str], device: torch.device) -> None:
    """Refuse to train where a rank started from something else than rank 0. Collective.

    Args:
        facts: what must be equal, by its name in an error.
        device: of the world's messages.

    Raises:
        RunError: the first fact and rank that differ; the same on every rank.
    """
    check_consistency([dict(theirs) for theirs in gather_json(dict(facts), device)])


def check_consistency(every: Sequence[Mapping[str, str]]) -> None:
    """Hold all ranks' facts against those of rank 0.

    Raises:
        RunError: one differs.
    """
    for name, value in every[0].items():
        for rank, theirs in enumerate(every):
            if theirs.get(name) != value:
                raise RunError(
                    f"rank {rank} has another {name} than rank 0: {theirs.get(name)}, not {value}; "
                    "every node needs the same"
                )


def text_digest(batch: Callable[[int, int], Tensor], global_batch: int) -> str:
    """A short name of the text that a run reads: equal texts have equal names.

    Args:
        batch: gives any sample of any step, (seq + 1,) tokens.
        global_batch: samples of a step.
    """
    every = max(1, global_batch // SAMPLES)
    digest = hashlib.sha256()
    for sample in range(0, global_batch, every):
        digest.update(batch(0, sample).numpy().tobytes())
    return digest.hexdigest()[:12]
