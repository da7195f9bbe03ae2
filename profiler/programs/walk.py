"""Walk a scheduled program of TVM into leaves of a loop nest.

For -> SBlockRealize -> SBlock -> SeqStmt -> BufferStore. Strides are differences of flattened
indices, which schedules without fused loops leave affine.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...costmodel.programs.nest import OPERATIONS, Access, Leaf, Loop, LoopKind, Program

KINDS: tuple[LoopKind, ...] = ("serial", "parallel", "vectorized", "unrolled")
"""TVM's numbers of loop kinds."""
VALUE_OPERATIONS = {
    **dict.fromkeys(("Add", "Sub"), "add"),
    "Mul": "mul",
    **dict.fromkeys(("Div", "FloorDiv", "FloorMod", "Mod"), "div"),
    **dict.fromkeys(("Max", "Min", "LT", "LE", "GT", "GE", "EQ", "NE", "And", "Or"), "compare"),
    "Select": "select",
    "Cast": "cast",
}
"""Operations counted by type of node."""
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
}
Values = dict[Any, int]


def walked(function: Any) -> Program:
    """Leaves of a scheduled ``PrimFunc``, in the order in which they run.

    Raises:
        ValueError: a statement or index that the walk does not know.
    """
    walk = _Walk()
    walk.statement(function.body)
    return Program(tuple(walk.leaves))


@dataclass
class _Walk:
    leaves: list[Leaf] = field(default_factory=list)
    nodes: int = 0
    loops: list[tuple[Any, Loop]] = field(default_factory=list)
    bound: list[tuple[Any, Any]] = field(default_factory=list)  # iteration variable, expression

    def statement(self, node: Any) -> None:
        kind = type(node).__name__
        self.nodes += 1
        if kind == "For":
            loop = Loop(int(node.extent), KINDS[int(node.kind)])
            self.loops.append((node.loop_var, loop))
            self.statement(node.body)
            self.loops.pop()
        elif kind == "SBlockRealize":
            self._block(node)
        elif kind == "SeqStmt":
            for part in node.seq:
                self.statement(part)
        elif kind == "BufferStore":
            self._leaf(node, self.loops)
        elif kind in ("IfThenElse", "AttrStmt"):
            self.statement(node.then_case if kind == "IfThenElse" else node.body)
        else:
            raise ValueError(f"unknown statement {kind}")

    def _block(self, node: Any) -> None:
        block, outer = node.block, len(self.bound)
        self.bound += [
            (axis.var, value) for axis, value in zip(block.iter_vars, node.iter_values, strict=True)
        ]
        reduced = [
            value
            for axis, value in zip(block.iter_vars, node.iter_values, strict=True)
            if int(axis.iter_type) == 2
        ]
        loops = self.loops
        self.loops = [
            (var, loop._replace(reduces=loop.reduces or any(_uses(v, var) for v in reduced)))
            for var, loop in loops
        ]
        if block.init is not None:
            spatial = [(var, loop) for var, loop in self.loops if not loop.reduces]
            self._leaf(block.init, spatial)
        self.statement(block.body)
        self.loops = loops
        del self.bound[outer:]

    def _leaf(self, store: Any, loops: list[tuple[Any, Loop]]) -> None:
        tally = dict.fromkeys(OPERATIONS, 0.0)
        reads: list[Any] = []
        _count(store.value, tally, reads)
        accesses = [self._access(store, loops, writes=True)]
        accesses += [self._access(read, loops, writes=False) for read in reads]
        self.leaves.append(
            Leaf(
                position=self.nodes,
                loops=tuple(loop for _, loop in loops),
                operations=tuple(tally.values()),
                accesses=tuple(dict.fromkeys(accesses)),
            )
        )

    def _access(self, node: Any, loops: list[tuple[Any, Loop]], writes: bool) -> Access:
        origin = self._flat(node, None)
        strides = tuple(self._flat(node, var) - origin for var, _ in loops)
        buffer = _buffer(node)
        bits = int("".join(filter(str.isdigit, str(buffer.dtype))) or 8)
        return Access(bits / 8, strides, writes)

    def _flat(self, node: Any, moved: Any) -> int:
        """The flattened index when every loop but ``moved`` (1) is at 0."""
        values: Values = {
            var: int(moved is not None and var.same_as(moved)) for var, _ in self.loops
        }
        for var, expression in self.bound:
            values[var] = _value(expression, values)
        index = 0
        for size, place in zip(_buffer(node).shape, node.indices, strict=True):
            index = index * int(size) + _value(place, values)
        return index


def _buffer(node: Any) -> Any:
    """The buffer of a store or load."""
    return node.source if type(node).__name__ == "TensorLoad" else node.buffer


def _uses(expression: Any, var: Any) -> bool:
    if type(expression).__name__ == "Var":
        return bool(expression.same_as(var))
    return any(
        _uses(getattr(expression, side), var)
        for side in ("a", "b", "value")
        if _has(expression, side)
    )


def _has(expression: Any, side: str) -> bool:
    return type(expression).__name__ != "IntImm" and hasattr(expression, side)


def _value(expression: Any, values: Values) -> int:
    kind = type(expression).__name__
    if kind == "IntImm":
        return int(expression.value)
    if kind == "Var":
        return values.get(expression, 0)
    if kind == "Cast":
        return _value(expression.value, values)
    if kind not in ARITHMETIC:
        raise ValueError(f"unknown index {kind}")
    return ARITHMETIC[kind](_value(expression.a, values), _value(expression.b, values))


def _count(expression: Any, tally: dict[str, float], reads: list[Any]) -> None:
    kind = type(expression).__name__
    if kind == "TensorLoad":
        reads.append(expression)
        return
    if kind == "Call":
        tally["select" if "if_then_else" in str(expression.op) else "special"] += 1
        for argument in expression.args:
            _count(argument, tally, reads)
        return
    if kind in VALUE_OPERATIONS:
        tally[VALUE_OPERATIONS[kind]] += 1
    for side in ("condition", "true_value", "false_value", "a", "b", "value"):
        child = getattr(expression, side, None)
        if child is not None and not isinstance(child, int | float | str):
            _count(child, tally, reads)
