"""Sizes, units and words that every file is held to; each gate is first shown to catch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# A field whose name holds one of these words is a physical quantity and says its unit.
QUANTITIES = {
    "bandwidth",
    "capacity",
    "delay",
    "duration",
    "elapsed",
    "footprint",
    "latency",
    "memory",
    "overhead",
    "payload",
    "rate",
    "size",
    "speed",
    "throughput",
    "time",
    "traffic",
    "workspace",
}
# The SI units in use, and the words that say that a quantity has none.
LAST_WORDS = {
    "s",
    "bytes",
    "flops",
    "tokens",
    "samples",
    "seconds",
    "usd",
    "watts",
    "joules",
    "change",
    "efficiency",
    "factor",
    "fraction",
    "ratio",
    "share",
    "slowdown",
    "steps",
}
HUMAN_UNITS = {
    "us",
    "ms",
    "ns",
    "kb",
    "mb",
    "gb",
    "tb",
    "kib",
    "mib",
    "gib",
    "tib",
    "tflops",
    "gflops",
    "gbps",
    "minutes",
    "hours",
    "bits",
}
# Names that hold such a word and count things instead.
COUNTS = {"group_size", "learning_rate", "size", "vocab_size"}

# Nothing of the machine that a file was written on.
FORBIDDEN = tuple("/" + place + "/" for place in ("work", "tmp/v", "root"))


def long_functions(source: str) -> list[tuple[str, int]]:
    """Name and length of every function longer than the limit."""
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    return [(name, length) for name, length in lengths if length > MAX_FUNCTION_LINES]


def _dataclass_fields(source: str) -> Iterator[tuple[str, str, str]]:
    """(class, field, annotation) of every annotated field of every dataclass."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield node.name, item.target.id, ast.unparse(item.annotation)


def fields_without_unit(source: str) -> list[str]:
    """``Class.field`` of every number that names a quantity and not its SI unit."""
    found = []
    for owner, name, annotation in _dataclass_fields(source):
        words = name.split("_")
        numeric = re.search(r"\b(int|float)\b", annotation) is not None
        named = bool(QUANTITIES & set(words)) and name not in COUNTS
        has_unit = words[-1] in LAST_WORDS or "per" in words
        if numeric and (HUMAN_UNITS & set(words) or (named and not has_unit)):
            found.append(f"{owner}.{name}")
    return found


def test_size_gate_catches_a_long_function() -> None:
    body = "    pass\n" * MAX_FUNCTION_LINES
    assert long_functions(f"def f():\n{body}") == [("f", MAX_FUNCTION_LINES + 1)]
    assert long_functions("def f():\n    pass\n") == []


def test_files_and_functions_are_short(root: Path, source_files: tuple[Path, ...]) -> None:
    assert source_files
    too_long = {}
    for path in source_files:
        source = path.read_text(encoding="utf-8")
        lines = len(source.splitlines())
        problems = [("file", lines)] if lines > MAX_FILE_LINES else []
        if problems := problems + long_functions(source):
            too_long[str(path.relative_to(root))] = problems
    assert too_long == {}


def test_units_gate_catches_a_bare_quantity() -> None:
    source = (
        "@dataclass(frozen=True)\n"
        "class Link:\n"
        "    latency: float\n"
        "    latency_s: float\n"
        "    bandwidth_bytes_per_s: Annotated[float, Field(gt=0)]\n"
        "    memory: Annotated[int, Field(ge=1)] | None = None\n"
        "    sent_gib: float\n"
        "    group_size: int\n"
        "    layers: int\n"
        "    time: str\n"
        "class Plain:\n"
        "    latency: float\n"
    )
    assert fields_without_unit(source) == ["Link.latency", "Link.memory", "Link.sent_gib"]


def test_quantities_carry_their_unit(root: Path, source_files: tuple[Path, ...]) -> None:
    priced = [p for p in source_files if p.relative_to(root).parts[0] in ("spec", "costmodel")]
    assert priced
    wrong = {
        str(path.relative_to(root)): found
        for path in priced
        if (found := fields_without_unit(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


def test_no_file_names_the_machine_it_was_written_on(
    root: Path, repository_files: tuple[Path, ...]
) -> None:
    found = []
    for path in repository_files:
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [(str(path.relative_to(root)), word) for word in FORBIDDEN if word in text]
    assert found == []
