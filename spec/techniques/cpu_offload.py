"""cpu_offload: states of a block in host memory, updated there.

Exact: the same numbers, elsewhere. Tried where a cluster grants memory of its hosts, simulated and
run, for all blocks. The card is in ``costmodel.techniques.cpu_offload``.

The optimizer's states go with a copy of the weights that it updates. Parameters may go too where a
layer frees them after each use, as zero3 does: then the device holds none between uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..technique import LayerKinds, State, TechniqueValue

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "cpu_offload"
OFFLOADS = ("optimizer", "all")
OPTIMIZER, ALL = OFFLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOffload:
    """States of a layer in the host's memory.

    ``optimizer``: its moments, beside the weights that it updates. ``parameters``: those too, which
    are then copied to the device for each use.
    """

    optimizer: bool = True
    parameters: bool = False


def offload_of(strategy: LayerStrategy) -> CpuOffload | None:
    """The offload of a layer; None: it has none."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, CpuOffload) else None


def offloads_parameters(strategy: LayerStrategy) -> bool:
    """True if the device holds a layer's parameters only during use."""
    offload = offload_of(strategy)
    return offload is not None and offload.parameters


def relocates(strategy: LayerStrategy) -> frozenset[State]:
    """States of a layer that the host keeps."""
    offload = offload_of(strategy)
    if offload is None:
        return frozenset()
    return frozenset({"optimizer", "parameters"} if offload.parameters else {"optimizer"})


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's offload breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    offload = offload_of(strategy)
    if offload is None:
        return None
    if not offload.optimizer:
        what = "parameters without the optimizer" if offload.parameters else "nothing"
        return f"cpu_offload of {what} is not built: leave optimizer true, or the technique out"
    return _parameters_violation(layer, strategy) if offload.parameters else None


def _parameters_violation(layer: Layer, strategy: LayerStrategy) -> str | None:
    from ..model.experts import experts_of

    shard = strategy.shard
    if not shard.gathers_each_use:
        return "cpu_offload all needs parameters that are freed after each use, as with zero3"
    if experts_of(layer) is not None:
        return "cpu_offload all of experts is not built yet: optimizer is"
    if shard.secondary_parameters > 1 or shard.parameters != shard.optimizer:
        return "cpu_offload all beside hpZ or nested degrees is not built yet"
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """The rule of a stack broken by a layer's offload, or None."""
    if offload_of(strategy) is not None and stack.state_layout == "contiguous":
        return f"cpu_offload of states as the stack {stack.name} lays them out is not built yet"
    return None


def word_of(value: CpuOffload) -> str:
    """The word of a value."""
    return ALL if value.parameters else OPTIMIZER


def from_word(word: str) -> CpuOffload | None:
    """The value of a word; None: it is none of ``OFFLOADS``."""
    return CpuOffload(parameters=word == ALL) if word in OFFLOADS else None


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=CpuOffload,
    kinds=LayerKinds.all_of("block"),
    words=OFFLOADS,
    word_of=word_of,
    from_word=from_word,
    help="States of blocks on the host: none, optimizer or all (with zero3).",
    metavar="O",
    legality_violation=legality_violation,
    stack_violation=stack_violation,
    relocates=relocates,
)
