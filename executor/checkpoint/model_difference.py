"""Fields in which two models differ, from their documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

MAX_FIELDS = 4
"""Fields that an error names; others are counted."""
Fields = dict[tuple[str, str], object]
"""Values of leaves by the part of the model and the path in it."""


def model_difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> tuple[str, str]:
    """Differing fields with the values of each model, the saved one's first.

    A field that several kinds of layers share is named once, without them.
    """
    theirs, ours = dict(_fields(saved)), dict(_fields(current))
    parts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in (*ours, *(key for key in theirs if key not in ours)):
        values = (str(theirs.get(key, "none")), str(ours.get(key, "none")))
        if values[0] != values[1]:
            parts[(key[1], *values)].append(key[0])
    fields = [
        (path if len(set(names)) > 1 or not names[0] else f"{names[0]} {path}", was, now)
        for (path, was, now), names in parts.items()
    ]
    rest = [f"{len(fields) - MAX_FIELDS} other fields"] if len(fields) > MAX_FIELDS else []
    was_text = ", ".join([f"{name} {was}" for name, was, _ in fields[:MAX_FIELDS]] + rest)
    now_text = ", ".join([f"{name} {now}" for name, _, now in fields[:MAX_FIELDS]] + rest)
    return was_text, now_text


def _fields(model: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], object]]:
    for key, value in model.items():
        if key != "towers":
            yield from ((("", path), leaf) for path, leaf in _leaves(key, value))
    for tower in model["towers"]:
        seen: dict[str, int] = defaultdict(int)
        name = f"{tower['name']} " if len(model["towers"]) > 1 else ""
        for run in tower["layers"]:
            kind = run["layer"]["kind"]
            seen[kind] += 1
            number = f" {seen[kind]}" if seen[kind] > 1 else ""
            part = f"{name}{kind}{number}"
            for key, value in {**run["layer"], "count": run.get("count", 1)}.items():
                yield from (((part, path), leaf) for path, leaf in _leaves(key, value))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner)
    else:
        yield path, value
