"""The run of tp_overlap: split products beside collectives in a group of their own.

Chunks run over any backend. ``fused`` is torch's own operations over symmetric memory, on CUDA
devices alone; it has not been run: here are cores only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...spec.errors import InputError
from ...spec.parallel.rank_groups import tensor_group
from ...spec.strategy import LayerStrategy
from ...spec.techniques.tp_overlap import FUSED, NAME, overlap_of
from ..models.layer import LayerModule
from ..models.linear.chunked_linear import ChunkedProducts
from ..models.linear.fused_linear import FusedLinear
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun
from ..torch_compat import fused_products, open_symmetric_memory, symmetric_memory_lack

if TYPE_CHECKING:
    from ..stage.options import BuildOptions

CHUNKED = "chunked:2, chunked:4 or chunked:8"


def overlap_layer(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Overlap a layer's collectives if its strategy says so.

    Raises:
        InputError: the device or this torch has no fused products.
    """
    value = overlap_of(strategy)
    if value is None:
        return
    if value.kernels != FUSED:
        module.overlapped = ChunkedProducts(value.chunks)
        return
    if lack := symmetric_memory_lack(options.device):
        raise _refused(lack)
    module.overlapped = FusedLinear(fused_products())


def _refused(lack: str) -> InputError:
    return InputError(NAME, FUSED, f"{CHUNKED} ({lack})", "chunked:4")


class OverlapHooks(TechniqueHooks):
    """Gives each layer's products the technique's own process group.

    Raises:
        InputError: a group of fused products has no symmetric memory between its devices.
    """

    def __init__(self, context: TechniqueContext) -> None:
        opened = set[str]()
        for layer, strategy in context.strategies.items():
            module = context.modules[layer]
            if not isinstance(module, LayerModule) or module.overlapped is None:
                continue
            group = context.group(tensor_group(strategy))
            if isinstance(module.overlapped, FusedLinear) and group.group_name not in opened:
                if lack := open_symmetric_memory(group):
                    raise _refused(lack)
                opened.add(group.group_name)
            module.overlapped.set_group(group)


TECHNIQUE = TechniqueRun(name=NAME, prepare=overlap_layer, start=OverlapHooks)
