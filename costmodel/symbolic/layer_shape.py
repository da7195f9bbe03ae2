"""What the work of a layer depends on besides the layer: the shapes of what comes in."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster.stack_spec import StackSpec
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import MatmulFormat, Scaling
from ...spec.workload.training import FULLY_TRAINED, LayerTraining
from ..technique import TechniquePrices


@dataclass(frozen=True, slots=True)
class TowerInputShape:
    """Another tower's output: tokens of a sample, width, whether this layer reads it.

    What a layer does not read only passes, which costs something where the layout changes.
    """

    tokens: int
    hidden: int
    read: bool


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What the work of one layer's micro-batch depends on, besides the layer itself.

    ``batch`` is samples on this rank; ``dtype`` the compute type. ``before`` is the strategy
    of the layer that feeds it where that splits activations differently, else None.
    ``shares_weight`` marks an embedding whose table is also the head's of its chunk.
    ``sources`` are the outputs of other towers that come along, in the layout of what feeds the
    layer. ``matmul`` and ``scaling`` are the narrow format of linear layers in blocks,
    ``training`` what of the layer is trained. ``prices`` are those of the strategy's techniques.
    """

    strategy: LayerStrategy
    before: LayerStrategy | None
    batch: int
    seq_len: int
    dtype: str
    stack: StackSpec
    shares_weight: bool = False
    sources: tuple[TowerInputShape, ...] = ()
    matmul: MatmulFormat | None = None
    scaling: Scaling = "current"
    training: LayerTraining = FULLY_TRAINED
    prices: TechniquePrices = ()


def activation_shape(
    shape: LayerShape, strategy: LayerStrategy, tokens: int, hidden: int
) -> tuple[int, ...]:
    """(seq, batch, hidden) of a rank's activations in the layout of ``strategy``."""
    samples = shape.batch * strategy.width // shape.strategy.width
    return (tokens // strategy.sequence_split, samples, hidden)
