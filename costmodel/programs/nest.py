"""A program as the leaves of its loop nest.

Only the innermost computations are kept, as in the compact abstract syntax tree of CDMPP (Hu et
al., EuroSys 2024, section 4): each leaf knows its loops, its operations and its accesses; its
place in the tree is its index in pre-order.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled", "tensor"]
LOOP_KINDS: tuple[LoopKind, ...] = ("serial", "parallel", "vectorized", "unrolled", "tensor")
"""``parallel`` loops run on different multiprocessors or cores, ``tensor`` ones inside a matrix
instruction."""
OPERATIONS = ("add", "mul", "div", "special", "compare", "select", "cast", "exchange")
"""Counted operations of a point; ``special``: exponentials and roots, ``exchange``: between lanes.
"""


class Loop(NamedTuple):
    """A loop of ``extent`` iterations; ``reduces``: its iterations add to one result."""

    extent: int
    kind: LoopKind = "serial"
    reduces: bool = False


class Access(NamedTuple):
    """A buffer's accesses, ``strides`` in elements for each loop, outermost first."""

    value_bytes: float
    strides: tuple[int, ...]
    writes: bool = False


class Leaf(NamedTuple):
    """A computation inside ``loops``, outermost first.

    ``position``: its index in the pre-order of the nest; ``operations``: counts a point, in the
    order of :data:`OPERATIONS`.
    """

    position: int
    loops: tuple[Loop, ...]
    operations: tuple[float, ...]
    accesses: tuple[Access, ...]

    @property
    def points(self) -> int:
        """How often the leaf runs."""
        return math.prod(loop.extent for loop in self.loops)


class Program(NamedTuple):
    """Leaves in the order in which they run; at least one."""

    leaves: tuple[Leaf, ...]


def counts(**operations: float) -> tuple[float, ...]:
    """Operations a point, by name; zero where not given."""
    return tuple(operations.get(name, 0.0) for name in OPERATIONS)
