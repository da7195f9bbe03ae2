"""Other towers' outputs at a layer: read by it, or passed on.

The chunk counts their bytes and their gradients'; a layer's tape counts traffic, and copies where
the layout changes.
"""

from __future__ import annotations

from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext
from ..ops.redistribute import redistribute
from ..symbolic.layer_shape import LayerShape, activation_shape
from ..symbolic.symbolic_tensor import Node, SymbolicTensor
from ..symbolic.tape import Tape


class TowerInputs:
    """Gradient entry points of each source's path through a layer."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._leaves: list[tuple[Node, SymbolicTensor]] = []
        """Sources that keep their layout, in which others read them too."""
        self._passed: list[tuple[tuple[Node, int], SymbolicTensor]] = []

    def enter(self, source: SymbolicTensor, redistributes: bool) -> None:
        """Let ``source`` in; its gradient adds to later layers'.

        If it ``redistributes``, nothing else reads this layout, and the gradient redistributed back
        is the first.
        """
        leaf = Node((), 1, lambda *grads: grads)
        source.producer = (leaf, 0)
        if not redistributes:
            self._leaves.append((leaf, source))

    def leave(self, source: SymbolicTensor) -> None:
        """Pass ``source`` on in a layout other than it came in."""
        if source.producer is not None:
            gradient = self._tape.constant(source.shape, source.dtype)
            self._passed.append((source.producer, gradient))

    def set_gradients(self) -> None:
        """Start from the later layers' gradients of the sources passed on."""
        for producer, gradient in self._passed:
            self._tape.add_gradient(producer, gradient)

    def add_gradients(self) -> None:
        """Add each source's gradient to the chunk's."""
        for leaf, source in self._leaves:
            gradient, leaf.gradients[0] = leaf.gradients[0], None
            if gradient is not None:
                self._tape.kernel("add", (gradient, source), source)


def run_tower_inputs(
    c: OpContext, shape: LayerShape, before: LayerStrategy
) -> tuple[tuple[SymbolicTensor, ...], TowerInputs]:
    """The layer's source tensors in its layout, and their gradient entry points.

    ``before``: the layout in which the sources come.
    """
    read: tuple[SymbolicTensor, ...] = ()
    tower_inputs = TowerInputs(c.tape)
    for source in shape.sources:
        sizes = activation_shape(shape, before, source.tokens, source.hidden)
        value = c.tape.constant(sizes, shape.dtype)
        tower_inputs.enter(value, redistributes=shape.before is not None)
        if shape.before is not None:
            value = redistribute(c, value, before, shape.strategy)
            tower_inputs.leave(value)
        if source.read:
            read = (*read, value)
    return read, tower_inputs
