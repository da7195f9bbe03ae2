"""Rows that ranks exchange between two token layouts.

Derived from the plan alone: every rank knows all blocks before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ...spec.parallel.batch_partition import IndexRange
from ...spec.parallel.sequence_partition import count, positions_of
from ...spec.plan.stage_messages import ActivationBlock


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """One rank's part of a row exchange (row: a sample's token).

    ``packed``: local rows in sending order; ``arranged``: positions of the new block's rows among
    those received; ``unpacked`` and ``restored``: their inverses, for the way back. ``sends`` and
    ``receives``: rows by rank.
    """

    group: dist.ProcessGroup
    before: tuple[int, int]
    after: tuple[int, int]
    packed: Tensor
    unpacked: Tensor
    arranged: Tensor
    restored: Tensor
    sends: list[int]
    receives: list[int]


def token_exchange(
    group: dist.ProcessGroup,
    before: list[ActivationBlock],
    after: list[ActivationBlock],
    position: int,
    device: torch.device,
) -> TokenExchange:
    """Exchange after which every rank of a group has its new block.

    ``before`` and ``after`` are the group's blocks by position, of the same rows, none twice.
    """
    source, target = before[position], after[position]
    sent = [_rows(source, source.intersection(other)) for other in after]
    received = [_rows(target, target.intersection(other)) for other in before]
    packed, restored = torch.cat(sent).to(device), torch.cat(received).to(device)
    return TokenExchange(
        group=group,
        before=_shape(source),
        after=_shape(target),
        packed=packed,
        unpacked=packed.argsort(),
        arranged=restored.argsort(),
        restored=restored,
        sends=[len(rows) for rows in sent],
        receives=[len(rows) for rows in received],
    )


def _shape(block: ActivationBlock) -> tuple[int, int]:
    return count(block.tokens), block.samples.size


def _rows(block: ActivationBlock, part: ActivationBlock) -> Tensor:
    if not part.rows:
        return torch.empty(0, dtype=torch.int64)
    spans = positions_of(block.tokens, part.tokens)
    tokens = torch.cat([torch.arange(*span) for span in spans])
    first = part.samples.first - block.samples.first
    samples = torch.arange(*IndexRange(first, first + part.samples.size))
    return (tokens[:, None] * block.samples.size + samples).flatten()


__all__ = ["TokenExchange", "token_exchange"]
