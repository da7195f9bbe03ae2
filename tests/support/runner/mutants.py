"""Broken plans: a valid document with one thing changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
HUGE = 2**40
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3,
    7,
    HUGE,
    2**63,
    -(2**70),
    1.5,
    1e300,
    "",
    "1",
    "main",
    "ü\u202e\n",
    "x" * 5000,
    [],
    [0],
    {},
    {"x": 1},
    [[]],
)


def places(document: Any, path: Path = ()) -> Iterator[Path]:
    """Every key and index of a document."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document))
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutant(document: dict[str, Any], source: random.Random) -> tuple[dict[str, Any], str]:
    """One random change of a document, and what it was."""
    changed = copy.deepcopy(document)
    path = source.choice(list(places(changed)))
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    where = ".".join(str(part) for part in path)
    return changed, f"{where}: {_change(holder, key, source)}"


def _change(holder: Any, key: str | int, source: random.Random) -> str:
    kind = source.choice(("value", "value", "near", "near", "drop", "extra", "copy", "swap"))
    value = holder[key]
    if kind == "near" and isinstance(value, int) and not isinstance(value, bool):
        holder[key] = value + source.choice([-2, -1, 1, 2, value, 7 * value])
    elif kind == "drop":
        del holder[key]
    elif kind == "extra" and isinstance(holder, dict):
        name = source.choice([f"{key}x", "phases", "unknown", "", str(key).upper()])
        holder[name] = source.choice([value, None, 1, {}])
    elif kind == "copy" and isinstance(holder, list):
        holder.insert(int(key), copy.deepcopy(value))
    elif kind == "swap" and isinstance(holder, list) and len(holder) > 1:
        other = source.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = copy.deepcopy(source.choice(ODD_VALUES))
        kind = "value"
    shown = holder.get(key, "gone") if isinstance(holder, dict) else "list"
    return f"{kind} {str(shown)[:60]!r}"
