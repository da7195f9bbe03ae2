"""Small faults that may be put into a module's source, one at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
"""What a comparison becomes: the boundary moves, or the answer turns."""
DOCUMENTING = frozenset({"overload", "override", "final", "abstractmethod", "dataclass_transform"})
"""Decorators without an effect when code runs."""
NEVER = ("annotation", "returns", "type_params")
"""Fields of syntax whose faults a type checker sees and no test."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    ``file`` is relative to the root; ``start`` and ``end`` are offsets in its bytes; ``line`` is
    the number of the first changed line and ``code`` its text, stripped.
    """

    file: str
    line: int
    code: str
    kind: str
    start: int
    end: int
    text: str

    @property
    def key(self) -> str:
        """A name that no other mutation of this source has."""
        return f"{self.file}:{self.line}:{self.kind}:{self.start}:{self.text}"

    def applied(self, source: bytes) -> bytes:
        """The faulty source."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(root: Path, file: str) -> list[Mutation]:
    """Every fault of a module, in order."""
    source = (root / file).read_bytes()
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for node, kind, text in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        if kind == "decorator removed":
            start = source.rindex(b"@", 0, start)
        code = lines[node.lineno - 1].decode().strip()
        found.append(Mutation(file, node.lineno, code, kind, start, end, text))
    return sorted(found, key=lambda each: (each.start, each.key))


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Node, kind of fault, and the text in the node's place; annotations are left alone."""
    for name, value in ast.iter_fields(tree):
        if name in NEVER:
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.JoinedStr):  # no right positions inside, before Python 3.12
                continue
            if isinstance(node, ast.AST):
                yield from _of_node(node)
                yield from _changes(node)


def _of_node(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    match node:
        case ast.Compare(left=left, ops=[op, *more], comparators=values):
            swapped = ast.Compare(left, [SWAPS[type(op)](), *more], values)
            yield node, "comparison", _expression(swapped)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield node, "constant + 1", _expression(ast.Constant(number + 1))
            yield node, "constant - 1", _expression(ast.Constant(number - 1))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, "and/or", _expression(ast.BoolOp(other, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "not removed", _expression(operand)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, "condition turned", _expression(ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=ast.expr() as value):
            yield from _of_return(value)
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "statement removed", "pass"
        case ast.Call():
            yield from _of_call(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            for decorator in node.decorator_list:
                if ast.unparse(decorator).rpartition(".")[2] not in DOCUMENTING:
                    yield decorator, "decorator removed", ""


def _of_return(value: ast.expr) -> Iterator[tuple[ast.expr, str, str]]:
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        yield value, "return turned", str(not value.value)
    elif not (isinstance(value, ast.Constant) and value.value is None):
        yield value, "return None", "None"


def _of_call(call: ast.Call) -> Iterator[tuple[ast.expr, str, str]]:
    for word in call.keywords:
        rest: Sequence[ast.keyword] = [each for each in call.keywords if each is not word]
        if word.arg:
            changed = ast.Call(call.func, call.args, [*rest])
            yield call, f"argument {word.arg} removed", _expression(changed)
    if len(call.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in call.args[:2]):
        first, second, *others = call.args
        swapped = ast.Call(call.func, [second, first, *others], call.keywords)
        yield call, "arguments swapped", _expression(swapped)


def _expression(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
