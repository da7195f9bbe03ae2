"""The run of expert_pipelining: experts' rows in chunks, in groups of their own for each level.

On CUDA devices the two levels have a stream each; on cores the exchanges run beside the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...spec.parallel.rank_groups import RankGroup, expert_tensor_group
from ...spec.strategy import LayerStrategy
from ...spec.techniques.expert_pipelining import NAME, exchange_groups, value_of
from ..models.block import Block
from ..models.layer import LayerModule
from ..models.moe.chunk_plan import ChunkGroups
from ..models.moe.chunk_way import ChunkedExperts
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

if TYPE_CHECKING:
    import torch.distributed as dist

    from ..stage.options import BuildOptions

OUTER, INNER = "between nodes", "inside nodes"


def cut_layer(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Cut a block's expert rows if its strategy says so."""
    value = value_of(strategy)
    if value is not None and isinstance(module, Block):
        module.chunked_experts = ChunkedExperts(value.forward, value.backward)


class PipeliningHooks(TechniqueHooks):
    """Gives each block's chunks the technique's own process groups and streams."""

    def __init__(self, context: TechniqueContext) -> None:
        def group(shape: RankGroup) -> dist.ProcessGroup | None:
            return context.group(shape) if shape.size > 1 else None

        for layer, strategy in context.strategies.items():
            module = context.modules[layer]
            if not isinstance(module, Block) or module.chunked_experts is None:
                continue
            between, inside = exchange_groups(strategy)
            module.chunked_experts.groups = ChunkGroups(
                between=group(between),
                nodes=between.size,
                inside=group(inside),
                places=inside.size,
                split=group(expert_tensor_group(strategy)),
            )
            module.chunked_experts.outer = context.streams[OUTER]
            module.chunked_experts.inner = context.streams[INNER]


TECHNIQUE = TechniqueRun(
    name=NAME, prepare=cut_layer, start=PipeliningHooks, streams=(OUTER, INNER)
)
