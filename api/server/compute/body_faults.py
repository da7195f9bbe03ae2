"""Faults of a body's shape: where, what is allowed, the nearest; never what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ....spec.errors import nearest_name
from ...problem.names import PINNED, grouped_text, meant_by
from ..problems import INVALID, MAX_ERRORS, MAX_TEXT, problem

UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
LIMITS = {"greater_than_equal": "ge", "less_than_equal": "le"}
UNION_MEMBER = re.compile(r"constrained-str|dict\[.*\]")
WHOLE = re.compile(r"\d{1,12}")


def validation_problem(error: ValidationError, body: type[Any]) -> dict[str, Any]:
    """Describe an invalid body's shape by its first fault and the list of all.

    ``body`` is the type that it was validated as.
    """
    errors = error.errors(include_url=False)
    faults = [_fault(item, body) for item in errors[:MAX_ERRORS]]
    first = faults[0]
    more = f"; {len(errors) - 1} more: see errors" if len(errors) > 1 else ""
    where = first["pointer"] or "body"
    room = MAX_TEXT - len(where) - len(more) - 2
    said = first["msg"] if len(first["msg"]) <= room else first["msg"][: room - 1] + "…"
    return problem(422, f"{where}: {said}{more}", INVALID, faults)


def _fault(item: ErrorDetails, body: type[Any]) -> dict[str, str]:
    path = _path(item["loc"])
    kind = item["type"]
    if kind in UNKNOWN and path:
        names = _names_at(body, path[:-1])
        near = _nearest_key(path, names, body)
        message = f"allowed: {grouped_text(names)}"
    elif kind in ("missing", "missing_argument"):
        near, message = "", "allowed: a value; the key is required"
    else:
        near = _nearest_value(item, body, path)
        message = item["msg"]
    hint = f"; nearest: {near}" if near else ""
    pointer = _pointer(path)
    room = MAX_TEXT - len(f"{pointer}: {hint}")  # a detail is both
    message = message if len(message) <= room else message[: room - 1] + "…"
    return {"pointer": pointer, "msg": message + hint}


def _path(location: tuple[int | str, ...]) -> list[str]:
    return [str(part) for part in location if not UNION_MEMBER.fullmatch(str(part))]


def _pointer(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _nearest_key(path: list[str], names: tuple[str, ...], body: type[Any]) -> str:
    """The key that was meant: of the same object, else of the body's others."""
    meant = meant_by(path[-1])
    for name in (meant, f"{meant}_s"):
        if name in names:
            return name
    places = dict(_places(body))
    elsewhere = next((places[name] for name in (meant, f"{meant}_s") if name in places), "")
    if elsewhere:
        return elsewhere
    if meant in PINNED and "pins" in places:
        return f'{places["pins"]}: ["{meant}=…"]'
    return nearest_name(path[-1][:100], names, count=1)


def _nearest_value(item: ErrorDetails, body: type[Any], path: list[str]) -> str:
    """A value that is allowed and near the one that was sent, made of our own words."""
    sent, context = item["input"], item.get("ctx", {})
    if item["type"] == "literal_error" and isinstance(sent, str):
        return nearest_name(sent[:100], _literals(_hint_at(body, path)), count=1)
    if item["type"] in LIMITS:
        return f"{context[LIMITS[item['type']]]:.15g}"
    if item["type"] == "int_type" and isinstance(sent, str) and WHOLE.fullmatch(sent):
        return str(int(sent))
    if item["type"] in ("int_from_float", "int_type") and isinstance(sent, float):
        return str(round(sent)) if abs(sent) < 10**12 else ""
    return ""


def _names_at(body: type[Any], path: list[str]) -> tuple[str, ...]:
    kind = _object_in(_hint_at(body, path)) if path else body
    return tuple(item.name for item in fields(kind)) if kind is not None else ()


def _hint_at(body: type[Any], path: list[str]) -> Any:
    hint: Any = body
    for part in path:
        kind = _object_in(hint)
        if kind is None:
            return None
        hint = _hints(kind).get(part)
    return hint


def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _object_in(hint: Any) -> type[Any] | None:
    """The dataclass that a type hint is or may be."""
    if is_dataclass(hint) and isinstance(hint, type):
        return hint
    inner = (_object_in(part) for part in get_args(hint))
    return next((kind for kind in inner if kind is not None), None)


def _literals(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    return [word for part in get_args(hint) for word in _literals(part)]


def _places(body: type[Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Pointers of the keys of a body's inner objects, by name."""
    for name, hint in _hints(body).items():
        kind = _object_in(hint)
        if above:
            yield name, f"{above}/{name}"
        if kind is not None:
            yield from _places(kind, f"{above}/{name}")
