"""Who sends which rows to whom where ranks exchange tokens between two layouts.

Worked out from the plan alone: every rank knows what each other one holds before and wants after.
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
    """One rank's part of an exchange of rows; a row is a token of a sample.

    ``packed`` are the rows of its block in the order in which they are sent, ``arranged`` the
    places, among the rows that come, of those of its new block; ``unpacked`` and ``restored``
    are their inverses, for the way back. ``sends`` and ``gets`` count rows by rank.
    """

    group: dist.ProcessGroup
    before: tuple[int, int]
    after: tuple[int, int]
    packed: Tensor
    unpacked: Tensor
    arranged: Tensor
    restored: Tensor
    sends: list[int]
    gets: list[int]


def token_exchange(
    group: dist.ProcessGroup,
    held: list[ActivationBlock],
    wanted: list[ActivationBlock],
    position: int,
    device: torch.device,
) -> TokenExchange:
    """The exchange after which every rank of a group has the block that it wants.

    Args:
        group: the ranks.
        held: blocks before, by position in the group; no row twice.
        wanted: blocks after, of the same rows.
        position: this rank's.
        device: of the activations.
    """
    mine, own = held[position], wanted[position]
    out = [_rows(mine, mine.intersection(other)) for other in wanted]
    come = [_rows(own, own.intersection(other)) for other in held]
    packed, restored = torch.cat(out).to(device), torch.cat(come).to(device)
    return TokenExchange(
        group=group,
        before=_shape(mine),
        after=_shape(own),
        packed=packed,
        unpacked=packed.argsort(),
        arranged=restored.argsort(),
        restored=restored,
        sends=[len(rows) for rows in out],
        gets=[len(rows) for rows in come],
    )


def _shape(block: ActivationBlock) -> tuple[int, int]:
    return count(block.tokens), block.samples.size


def _rows(block: ActivationBlock, part: ActivationBlock) -> Tensor:
    """The numbers of a part's rows among those of its block, token by token."""
    if not part.rows:
        return torch.empty(0, dtype=torch.int64)
    spans = positions_of(block.tokens, part.tokens)
    tokens = torch.cat([torch.arange(*span) for span in spans])
    first = part.samples.first - block.samples.first
    samples = torch.arange(*IndexRange(first, first + part.samples.size))
    return (tokens[:, None] * block.samples.size + samples).flatten()


__all__ = ["TokenExchange", "token_exchange"]
