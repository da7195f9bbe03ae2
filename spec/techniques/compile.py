"""compile: blocks fused by torch.compile, or replayed as one CUDA graph.

Exact: the same sums, in another order. Planned where a pin asks for it, simulated and run, for
dense decoder blocks. The card is in ``costmodel.techniques.compile``.

Graphs replay what was recorded, at the addresses of the record. So they take blocks of one rank
alone, whose parameters nothing gathers, casts or frees: with a second data-parallel rank, or
masters in another format, fully_shard makes the parameters that compute anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..technique import LayerKinds, TechniqueValue

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

NAME = "compile"
CompileMode = Literal["default", "cuda_graph"]
COMPILE_MODES: tuple[CompileMode, ...] = ("default", "cuda_graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """Compilation of a block.

    ``default``: fused kernels, launched one by one. ``cuda_graph``: the same, replayed as one
    graph a pass.
    """

    mode: CompileMode = "default"


def mode_of(strategy: LayerStrategy) -> CompileMode | None:
    """The mode of a compiled layer; None: it runs eagerly."""
    value = strategy.techniques.get(NAME)
    return value.mode if isinstance(value, Compile) else None


def compiles_whole(strategy: LayerStrategy) -> bool:
    """True if a compiled block is one graph, not parts.

    Collectives of tensor parallelism and recomputed core attention stay eager.
    """
    return strategy.tp == 1 and strategy.recompute != "selective"


def joins_backward(strategy: LayerStrategy) -> bool:
    """True for a one-graph backward, which no schedule can split."""
    return mode_of(strategy) is not None and compiles_whole(strategy)


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's compilation breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    from ..model.dense_blocks import dense_block_violation
    from ..model.layers import BlockLayer

    if not isinstance(layer, BlockLayer) or dense_block_violation(layer) is not None:
        return "compile is built for dense decoder blocks so far"
    if strategy.cp > 1 or strategy.ulysses:
        return "compile beside cp or ulysses is not built yet"
    if dtype.matmul is not None:
        return f"compile of products in {dtype.matmul} is not built yet"
    graphs = mode_of(strategy) == "cuda_graph"
    return _graph_violation(strategy, stage_ranks, dtype) if graphs else None


def _graph_violation(strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord) -> str | None:
    """The rule that a replayed pass breaks; None if it is legal."""
    if strategy.tp > 1:
        return f"cuda_graph with tp {strategy.tp} would capture collectives, which is not built yet"
    if strategy.recompute != "none":
        return f"cuda_graph with recompute {strategy.recompute} is not built yet"
    parts = strategy.data_parallel(stage_ranks)
    if parts > 1:
        return f"cuda_graph needs parameters that stay where they are: dp {parts} gathers them anew"
    if dtype.param != dtype.master:
        return (
            "cuda_graph needs parameters that stay where they are: "
            f"{dtype.param} copies of {dtype.master} masters are made anew each step"
        )
    return None


def stack_violation(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    """The rule of a stack broken by a layer's mode, or None."""
    if mode_of(strategy) == "default" and stack.compile:
        return f"the stack {stack.name} compiles every layer already"
    return None


def word_of(value: Compile) -> str:
    """The word of a value: its mode."""
    return value.mode


def from_word(word: str) -> Compile | None:
    """The value of a word; None: it is none of ``COMPILE_MODES``."""
    return next((Compile(mode=mode) for mode in COMPILE_MODES if mode == word), None)


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=Compile,
    kinds=LayerKinds.all_of("block"),
    words=COMPILE_MODES,
    word_of=word_of,
    from_word=from_word,
    help="none, default (fused kernels) or cuda_graph (one launch a pass).",
    metavar="C",
    legality_violation=legality_violation,
    stack_violation=stack_violation,
    joins_backward=joins_backward,
    slow_start=True,
    one_document=True,
)
