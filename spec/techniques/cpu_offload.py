"""cpu_offload: states of a block in the memory of the host, updated there.

Exact: the same numbers, elsewhere. Tried where a cluster grants memory of its hosts, simulated and
run, for all blocks. The card is in :mod:`shardwright.costmodel.techniques.cpu_offload`.

The optimizer's states go with a copy of the weights that it updates. Parameters may go too where a
layer frees them after each use, as zero3 does: then the device holds none between uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..choices import OFFLOADS
from ..model.experts import experts_of
from ..technique import LayerKinds, TechniqueValue

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "cpu_offload"
OPTIMIZER, ALL = OFFLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOffload:
    """Which states of a layer the host keeps.

    ``optimizer``: its moments, beside the weights that it updates. ``parameters``: those too, which
    are then copied to the device for each use.
    """

    optimizer: bool = True
    parameters: bool = False


def offload_of(strategy: LayerStrategy) -> CpuOffload | None:
    """What of a layer is on the host; None: nothing."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, CpuOffload) else None


def offloads_parameters(strategy: LayerStrategy) -> bool:
    """Whether the device holds a layer's parameters only while they are used."""
    found = offload_of(strategy)
    return found is not None and found.parameters


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """Why a layer's states may not be on the host as its strategy says; None if they may.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    found = offload_of(strategy)
    if found is None:
        return None
    if not found.optimizer:
        what = "parameters without the optimizer" if found.parameters else "nothing"
        return f"cpu_offload of {what} is not built: leave optimizer true, or the technique out"
    return _parameters_reason(layer, strategy) if found.parameters else None


def _parameters_reason(layer: Layer, strategy: LayerStrategy) -> str | None:
    """Why parameters may not be on the host: they are not freed after each use, or are twice."""
    shard = strategy.shard
    if not shard.gathers_each_use:
        return "cpu_offload all needs parameters that are freed after each use, as with zero3"
    if experts_of(layer) is not None:
        return "cpu_offload all of experts is not built yet: optimizer is"
    if shard.secondary_parameters > 1 or shard.parameters != shard.optimizer:
        return "cpu_offload all beside hpZ or nested degrees is not built yet"
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """Why the stack cannot say where a layer's states are; None if it can."""
    if offload_of(strategy) is not None and stack.state_layout != "fsdp2":
        return f"cpu_offload of states as the stack {stack.name} lays them out is not built yet"
    return None


def word_of(value: CpuOffload) -> str:
    """The word of a flag that says what is on the host."""
    return ALL if value.parameters else OPTIMIZER


def from_word(word: str) -> CpuOffload | None:
    """What a word of a flag says; None: it is none of ``OFFLOADS``."""
    return CpuOffload(parameters=word == ALL) if word in OFFLOADS else None


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=CpuOffload,
    kinds=LayerKinds.all_of("block"),
    words=OFFLOADS,
    word_of=word_of,
    from_word=from_word,
    legality_violation=legality_violation,
    stack_violation=stack_violation,
)
