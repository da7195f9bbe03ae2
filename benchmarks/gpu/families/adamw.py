"""AdamW over one large parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work

from shardwright.kernels.dispatch import Dispatcher


def _made(make: Make, sizes: Sizes, fused: bool) -> torch.optim.AdamW:
    parameter = torch.nn.Parameter(make.normal(sizes.parameters, dtype=torch.float32))
    parameter.grad = make.normal(sizes.parameters, dtype=torch.float32)
    return torch.optim.AdamW([parameter], fused=fused, foreach=not fused)


def _ours(kernels: Dispatcher, fused: torch.optim.AdamW, listed: torch.optim.AdamW) -> Any:
    return fused.step()


def _eager(fused: torch.optim.AdamW, listed: torch.optim.AdamW) -> Any:
    return listed.step()


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Parameter and moments read and written, gradient read; all float32."""

    def make(maker: Make) -> tuple[torch.optim.AdamW, torch.optim.AdamW]:
        return _made(maker, sizes, fused=True), _made(maker, sizes, fused=False)

    yield Entry(
        family="adamw",
        case=f"{sizes.parameters} parameters, float32",
        mode="forward",
        make=make,
        ours=_ours,
        eager=_eager,
        work=Work(7 * 4 * sizes.parameters),
        judged=False,  # it is float32, and the library's own
        error_limit=None,
        compiled=False,
    )
