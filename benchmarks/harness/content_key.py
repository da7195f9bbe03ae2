"""Content keys of code and data, so that figures survive a move.

Paths, imports, docstrings, comments, layout and prose do not count; the interpreter's version does.
"""

from __future__ import annotations

import ast
import hashlib
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from harness.paths import files_under

PROSE = (".md",)
ITEM, PATHS = "Item", "reads"
"""The call that declares an item, and its argument that lists paths."""


def content_key(paths: Sequence[Path]) -> str:
    """The key of these files and folders: 16 hexadecimal digits.

    Uncommitted work counts as it stands.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    return key_of(digests(paths).elements())


def key_of(contents: Iterable[str]) -> str:
    """The key of a multiset of digests."""
    whole = hashlib.sha256(platform.python_version().encode())
    for digest in sorted(contents):
        whole.update(digest.encode())
    return whole.hexdigest()[:16]


def digests(paths: Sequence[Path]) -> Counter[str]:
    """Digests of all files under these paths; files without code are skipped.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    files: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"an item reads {path}, which does not exist")
        files.update(files_under(path))
    stats = ((path, path.stat()) for path in files)
    codes = (_digest(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)
    return Counter(digest for digest in codes if digest)


@cache
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    """Digest of a file in its present state, cached across items."""
    if path.suffix in PROSE:
        return ""
    content = path.read_bytes()
    if path.suffix == ".py":
        code = code_of(content)
        content = code.encode()
        if not code:
            return ""
    return hashlib.sha256(content).hexdigest()


def code_of(source: bytes) -> str:
    """Syntax tree without imports, docstrings and an item's paths; may be empty.

    Raises:
        SyntaxError: the source is not Python.
    """
    tree = _Code().visit(ast.parse(source))
    return ast.dump(tree) if tree.body else ""


class _Code(ast.NodeTransformer):
    """Drops what a move rewrites."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == ITEM:
            node.keywords = [word for word in node.keywords if word.arg != PATHS]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        value = node.value
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        return None if is_text else self.generic_visit(node)
