"""Inputs of a layer's lowering, besides the layer itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...spec.cluster.stack_spec import StackSpec
from ...spec.strategy import LayerStrategy
from ...spec.workload.expert_load import LoadBucket
from ...spec.workload.number_formats import MatmulFormat, Scaling
from ...spec.workload.training import FULLY_TRAINED, LayerTraining

if TYPE_CHECKING:
    from ..technique import TechniquePrices


@dataclass(frozen=True, slots=True)
class TowerInputShape:
    """Another tower's output: tokens per sample, width, whether it is read.

    An unread output only passes, at a cost if the layout changes.
    """

    tokens: int
    hidden: int
    read: bool


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Inputs that shape one layer's micro-batch, besides the layer itself.

    ``batch``: samples on this rank; ``dtype``: compute type. ``before``: the preceding layer's
    strategy if it splits activations differently, else None. ``shares_weight``: an embedding whose
    table is also the head's of its chunk. ``sources``: outputs of other towers, in the preceding
    layer's layout. ``matmul`` and ``scaling``: low-precision format of linear layers in blocks;
    ``training``: trained parts of the layer; ``prices``: of the strategy's techniques; ``load``: of
    its experts, None if even. ``documents``: mean tokens of a token's own
    document, None for one document a sample.
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
    load: LoadBucket | None = None
    documents: float | None = None


def activation_shape(
    shape: LayerShape, strategy: LayerStrategy, tokens: int, hidden: int
) -> tuple[int, ...]:
    """(seq, batch, hidden) of a rank's activations in the layout of ``strategy``."""
    samples = shape.batch * strategy.width // shape.strategy.width
    return (tokens // strategy.sequence_split, samples, hidden)
