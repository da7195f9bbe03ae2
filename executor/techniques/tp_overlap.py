"""The run of tp_overlap: split products in chunks, beside collectives in a group of their own.

Chunks run over any backend. ``fused`` is torch's symmetric memory, on CUDA devices alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...spec.errors import InputError, NotBuiltError
from ...spec.parallel.rank_groups import tensor_group
from ...spec.strategy import LayerStrategy
from ...spec.techniques.tp_overlap import FUSED, NAME, overlap_of
from ..groups.chunked_linear import ChunkedProducts
from ..models.layer import LayerModule
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

if TYPE_CHECKING:
    from ..stage.options import BuildOptions

FUSED_OPERATIONS = ("fused_all_gather_matmul", "fused_matmul_reduce_scatter")


def overlap_layer(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Overlap a layer's collectives if its strategy says so.

    Raises:
        InputError: the device or this torch cannot do it.
        NotBuiltError: fused kernels.
    """
    value = overlap_of(strategy)
    if value is None:
        return
    if value.kernels == FUSED:
        if lack := fused_lack(options.device):
            raise InputError(NAME, FUSED, f"chunked:2, chunked:4 or chunked:8 ({lack})", "none")
        raise NotBuiltError(f"{NAME} fused in a run", "chunked:4")
    module.chunked = ChunkedProducts(value.chunks)


def fused_lack(device: torch.device) -> str | None:
    """What fused kernels need and a device or this torch lacks; None: nothing."""
    if device.type != "cuda":
        return f"fused kernels need a CUDA device, not {device.type}"
    try:
        import torch.distributed._symmetric_memory
    except ImportError:
        return "this torch has no torch.distributed._symmetric_memory"
    names = [name for name in FUSED_OPERATIONS if not hasattr(torch.ops.symm_mem, name)]
    return f"this torch has no torch.ops.symm_mem.{names[0]}" if names else None


class OverlapHooks(TechniqueHooks):
    """Gives each layer's chunks the technique's own process group."""

    def __init__(self, context: TechniqueContext) -> None:
        for layer, strategy in context.strategies.items():
            module = context.modules[layer]
            if isinstance(module, LayerModule) and module.chunked is not None:
                module.chunked.chunks.group = context.group(tensor_group(strategy))


TECHNIQUE = TechniqueRun(name=NAME, prepare=overlap_layer, start=OverlapHooks)
