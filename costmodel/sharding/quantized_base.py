"""Frozen weights in 4 or 8 bits: packed shards, whole scales, gathers of packed bytes.

Sharded, the packed elements are split and gathered as they are; every rank holds all scales, which
lie beside the sharded storage (bitsandbytes nn/modules.py: Params4bit.quant_state). The product
dequantizes them (``ops/low_precision``).
"""

from __future__ import annotations

from ...spec.report.work_items import Collective, streamed
from ...spec.workload.base_formats import packed_bytes
from ..symbolic.tape import WorkItem
from .param_groups import ParamGroup

PACKED = "int8"
"""Format under which packed bytes are copied and sent."""


def gathered_base_bytes(group: ParamGroup) -> int:
    """Bytes of a group's packed elements, padding included."""
    return 0 if group.base is None else packed_bytes(group.padded, group.base)


def stored_base_bytes(group: ParamGroup, degree: int) -> int:
    """Bytes of a group split over ``degree`` ranks, with all scales and any second copy."""
    pieces = -(-gathered_base_bytes(group) // degree)
    second = -(-gathered_base_bytes(group) // group.secondary) if group.secondary > 1 else 0
    return pieces + second + group.scales


def gather_base(group: ParamGroup, degree: int) -> tuple[WorkItem, ...]:
    """Gather packed elements from ``degree`` ranks, each copied in and out."""
    whole = gathered_base_bytes(group)
    if degree == 1:
        return (streamed("copy", whole, 2 * whole, PACKED),)
    piece, ranks = -(-whole // degree), group.inner(degree)
    return (
        streamed("copy", piece, 2 * piece, PACKED),
        Collective("all_gather", *ranks, whole, PACKED),
        streamed("copy", whole, 2 * whole, PACKED),
    )


def base_pieces(group: ParamGroup) -> int:
    """Ranks that a gather of the group joins."""
    return group.parameters if group.nests_parameters else group.degree


def keep_secondary_base(group: ParamGroup) -> tuple[WorkItem, ...]:
    """Keep a piece of the gathered elements for the backward."""
    if group.secondary == 1:
        return ()
    piece = -(-gathered_base_bytes(group) // group.secondary)
    return (streamed("copy", piece, 2 * piece, PACKED),)
