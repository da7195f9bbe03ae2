"""Which blocks may be compiled, and how: what pins ask for, where it is legal.

Nothing else is tried: what it gains rests on host times that nobody measured yet, and on cores it
costs seconds of a compiler before the first step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...datasets.catalogue.device import CPU
from ...spec.choices import COMPILE_MODES
from ...spec.model import Layer
from ...spec.strategy import LayerStrategy
from ...spec.techniques import technique_reason
from ...spec.techniques.compile import with_mode
from ...spec.workload import Workload

GRAPH_DEVICES = "CUDA devices: cores replay no graphs"


def strategies(
    layer: Layer,
    strategy: LayerStrategy,
    ranks: int,
    workload: Workload,
    wanted: Collection[object],
) -> Iterator[LayerStrategy]:
    """A layer's strategy without the technique, then with each wanted value that is legal.

    Args:
        layer: the layer.
        strategy: its other decisions, sharding left out.
        ranks: ranks of its stage.
        workload: number formats.
        wanted: what pins or lists of values ask for.
    """
    yield strategy
    for mode in COMPILE_MODES:
        if mode in wanted:
            found = with_mode(strategy, mode)
            if technique_reason(layer, found, ranks, workload.dtype) is None:
                yield found


def device_reason(value: object, device: str) -> str | None:
    """What a value needs that a device of this name is not; None if it needs nothing more."""
    return GRAPH_DEVICES if value == "cuda_graph" and device == CPU else None
