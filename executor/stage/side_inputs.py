"""Side inputs of a chunk: other towers' outputs, score biases.

An output travels from its layer to its last reader, in the activations' layout. A bias of relative
positions is made by the block with the table and added by later blocks of its tower.
"""

from __future__ import annotations

from torch import Tensor

from ...spec.model.towers import LayerContext, TowerOutput, tower_outputs_after
from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from .redistribute import redistribute


class SideInputs:
    """Side inputs of one forward pass of a chunk.

    ``values`` are those of the ``incoming`` outputs.
    """

    def __init__(
        self,
        contexts: tuple[LayerContext, ...],
        incoming: tuple[TowerOutput, ...],
        values: tuple[Tensor, ...],
    ) -> None:
        self._contexts = contexts
        self._outputs = dict(zip(incoming, values, strict=True))
        self.bias: Tensor | None = None

    def redistribute(
        self, before: LayerStrategy, after: LayerStrategy, process_groups: ProcessGroups
    ) -> None:
        """Redistribute everything to the next layer's layout."""
        for source, value in self._outputs.items():
            self._outputs[source] = redistribute(value, before, after, process_groups)

    def read(self, index: int) -> tuple[Tensor, ...]:
        """Outputs that a layer reads."""
        return tuple(self._outputs[source] for source in self._contexts[index].read)

    def after_layer(self, index: int, x: Tensor) -> None:
        """Keep a layer's output that another tower reads; drop unread ones."""
        following = tower_outputs_after(self._contexts, index)
        new = {source: x for source in following if source.layer == index}
        self._outputs = {s: v for s, v in {**self._outputs, **new}.items() if s in following}
        if new:
            self.bias = None

    def outgoing(self, index: int) -> tuple[Tensor, ...]:
        """Outputs sent on from a chunk's last layer, in receiver order."""
        return tuple(self._outputs[source] for source in tower_outputs_after(self._contexts, index))


__all__ = ["SideInputs"]
