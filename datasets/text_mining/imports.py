"""Modules that a source file names, and an order in which those come first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+\(?([^\n#]*)|import[ \t]+([\w., \t]+))", re.M
)
QUOTED = re.compile(r"(?:#include\s*|from\s+|import\s+|require\()[\"']([./\w-]+)[\"']")
"""Files of C, JavaScript and TypeScript."""


def named_files(name: str, text: str, files: Sequence[str]) -> list[str]:
    """Those of a repository's ``files`` that a file names, sorted."""
    known = set(files)
    found = set()
    for place in (*_python(name, text), *_quoted(name, text)):
        for candidate in place:
            if candidate in known and candidate != name:
                found.add(candidate)
                break
    return sorted(found)


def _python(name: str, text: str) -> list[list[str]]:
    if not name.endswith(".py"):
        return []
    places = []
    for source, names, plain in PYTHON.findall(text):
        if plain:
            places += [_module_files(each.split(" as ")[0].strip()) for each in plain.split(",")]
            continue
        dots = len(source) - len(source.lstrip("."))
        parts = [part for part in source.lstrip(".").split(".") if part]
        if dots:
            parts = name.split("/")[:-dots] + parts
        base = ".".join(parts)
        for each in names.split(","):
            word = each.split(" as ")[0].strip(" ()\\\t")
            places.append(_module_files(f"{base}.{word}".strip(".")) + _module_files(base))
    return places


def _module_files(module: str) -> list[str]:
    """Files of a module; those of a folder ``src`` too."""
    path = module.replace(".", "/")
    plain = [f"{path}.py", f"{path}/__init__.py"] if path else ["__init__.py"]
    return [*plain, *(f"src/{each}" for each in plain)]


def _quoted(name: str, text: str) -> list[list[str]]:
    if name.endswith(".py"):
        return []
    folder = name.rpartition("/")[0]
    places = []
    for each in QUOTED.findall(text):
        path = _joined(folder, each)
        places.append([path, *(path + suffix for suffix in (".js", ".ts", ".jsx", ".tsx", ".h"))])
    return places


def _joined(folder: str, path: str) -> str:
    parts = folder.split("/") if folder and path.startswith((".", '"')) else []
    if not path.startswith(".") and folder:
        parts = folder.split("/")
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def imports_first(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Files so that each comes after those that it names; cycles are cut at the least name.

    Kahn's algorithm: of what waits for nothing the least name comes first; where all wait, that
    which waits for the fewest, the least name among them.
    """
    waits = {name: {other for other in others if other in names} for name, others in names.items()}
    order: list[str] = []
    while waits:
        ready = sorted(name for name, others in waits.items() if not others)
        taken = ready or [min(waits, key=lambda name: (len(waits[name]), name))]
        for name in taken:
            order.append(name)
            del waits[name]
        for others in waits.values():
            others.difference_update(taken)
    return order
