"""Cases of our own operations: what a device runs as one kernel in place of several.

One line an operation, under the name that the lowering and a recorded run give it. An operation
is timed where its family would run it fused: on a core, where only Triton's interpreter could,
there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from ..kernels.dispatch import Family, Request, choose
from ..kernels.norm import RMS_NORM
from .case import Case, Place, Run
from .sizes import Sizes
from .streamed_cases import Rows, Streamed, cases_of

ours = torch.ops.shardwright
EPS = 1e-6


class Fused(NamedTuple):
    """An operation, and the family that says where it runs."""

    family: Family
    streamed: Streamed


def _rms_norm(rows: Rows) -> Run:
    return partial(ours.rms_norm, rows.random(), rows.scale(), EPS)


def _rms_norm_backward(rows: Rows) -> Run:
    x, weight = rows.random(), rows.scale()
    _, inverse_rms = ours.rms_norm(x, weight, EPS)
    return partial(ours.rms_norm_backward, rows.random(), x, weight, inverse_rms)


def _norm_traffic(passes: int, scales: int) -> Callable[[Rows], int]:
    """Activations, one fp32 number a row, and the weight (with its gradient)."""
    return lambda r: passes * r.full_bytes + r.statistics_bytes + scales * r.scale_bytes


FUSED_OPS = (
    Fused(RMS_NORM, Streamed("rms_norm", _norm_traffic(2, 1), _rms_norm)),
    Fused(RMS_NORM, Streamed("rms_norm_backward", _norm_traffic(3, 2), _rms_norm_backward)),
    # The other operations of shardwright:: that layers call (gated activations, rotary
    # embedding, cross-entropy) are a line each, as soon as their family has them.
)


def fused(rows: int, sizes: Sizes, place: Place) -> Iterator[Case]:
    """The operations that the device runs fused, over so many rows."""
    request = Request(place.device, place.kind, (rows, sizes.width))
    here = tuple(op.streamed for op in FUSED_OPS if choose(op.family, request).variant.fused)
    return cases_of(here, Rows(rows, sizes.width, sizes.vocab, place))
