"""Modules that a source file names, and an order in which those come first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(?:\(([^)]*)\)|((?:[^\n#\\]|\\\n)*))"
    r"|import[ \t]+([\w., \t]+))",
    re.M,
)
COMMENT = re.compile(r"#[^\n]*")
TEXT = re.compile(r"(\"{3}|'{3})(?:[^\\]|\\.)*?\1", re.S)
"""Documentation of a module, whose examples import what it does not."""
QUOTED = re.compile(r"(?:#include\s*|from\s+|import\s+|require\()[\"']([./\w-]+)[\"']")
"""Files of C, JavaScript and TypeScript."""


def named_files(name: str, text: str, files: Sequence[str], root: str = "") -> list[str]:
    """Those of a repository's ``files`` that a file names, sorted.

    ``root``: the repository's own name. Where its folder is a package, absolute modules are named
    from there; else from the folder, or one called ``src``.
    """
    known = set(files)
    if "__init__.py" not in known:
        root = ""
    found = set()
    for place in (*_python(name, text, root), *_quoted(name, text)):
        for candidate in place:
            if candidate in known and candidate != name:
                found.add(candidate)
                break
    return sorted(found)


def _python(name: str, text: str, root: str) -> list[list[str]]:
    if not name.endswith(".py"):
        return []
    places = []
    for source, inside, line, plain in PYTHON.findall(TEXT.sub("", text)):
        if plain:
            modules = (each.split(" as ")[0].strip() for each in plain.split(","))
            places += [_of_root(module, root) for module in modules]
            continue
        names = COMMENT.sub("", inside or line).replace("\\\n", " ")
        dots = len(source) - len(source.lstrip("."))
        parts = [part for part in source.lstrip(".").split(".") if part]
        if dots:
            parts = name.split("/")[:-dots] + parts
        base = ".".join(parts)
        own = "" if dots else root  # a relative one is below its own folder alone
        for each in names.split(","):
            if word := each.split(" as ")[0].strip():
                places.append(_of_root(f"{base}.{word}".strip("."), own) + _of_root(base, own))
    return places


def _of_root(module: str, root: str) -> list[str]:
    """Files of a module; those of a package ``root`` alone, where there is one."""
    first, _, rest = module.partition(".")
    if not root:
        return _module_files(module)
    return _module_files(rest) if first == root else []


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

    Kahn's algorithm: of what waits for nothing the least name comes first; where all wait, each
    cycle that waits for no other is cut at what waits for the fewest, the least name among them.
    """
    waits = {name: {other for other in others if other in names} for name, others in names.items()}
    order: list[str] = []
    while waits:
        ready = sorted(name for name, others in waits.items() if not others)
        taken = ready or [
            min(cycle, key=lambda name: (len(waits[name]), name)) for cycle in _first_cycles(waits)
        ]
        for name in taken:
            order.append(name)
            del waits[name]
        for others in waits.values():
            others.difference_update(taken)
    return order


def _first_cycles(waits: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected files that wait for none but each other, by their least names."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    names = sorted(waits)
    place = {name: n for n, name in enumerate(names)}
    pairs = [(place[name], place[other]) for name in names for other in waits[name]]
    rows, columns = zip(*pairs, strict=True)
    graph = csr_matrix(([1] * len(pairs), (rows, columns)), shape=(len(names), len(names)))
    _, label = connected_components(graph, connection="strong")
    open_ones = {label[row] for row, column in pairs if label[row] != label[column]}
    cycles: dict[int, list[str]] = {}
    for n, name in enumerate(names):
        if label[n] not in open_ones:
            cycles.setdefault(int(label[n]), []).append(name)
    return list(cycles.values())
