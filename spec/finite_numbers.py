"""Numbers of documents: finite, so that no later code meets one that is not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from .errors import InputError

FINITE = "a finite number, below 1.8e308"
SURELY_FINITE_DIGITS = 300


class NonFiniteError(ValueError):
    """A number that is none, infinite, or so large that it would be as a float."""


def finite_number(text: str) -> float:
    """The number in a document's text.

    Raises:
        NonFiniteError: it is not finite.
    """
    number = float(text)
    if not math.isfinite(number):
        raise NonFiniteError(text)
    return number


def finite_int(text: str) -> int:
    """The whole number in a document's text, if it is finite as a float too."""
    if len(text) > SURELY_FINITE_DIGITS:
        finite_number(text)
    return int(text)


FINITE_ONLY: dict[str, Any] = {
    "parse_constant": finite_number,
    "parse_float": finite_number,
    "parse_int": finite_int,
}
"""Arguments of ``json.loads`` that raise :class:`NonFiniteError`."""


def refuse_non_finite(document: Any, where: str) -> None:
    """Refuse a parsed document with a number that is not finite, wherever it stands.

    Raises:
        InputError: the first one, by its place.
    """
    for path, number in _numbers_of(document):
        if not _is_finite(number):
            place = f"{where}: {path}" if path else where
            raise InputError(place, number, FINITE)


def non_finite_error(text: str | bytes, where: str, number: str) -> InputError:
    """Error of a number that a JSON text may not hold, with its place."""
    try:
        document = json.loads(text, parse_int=float)
    except (ValueError, RecursionError):  # what follows the number is no JSON either
        return InputError(where, number, FINITE)
    path = next((path for path, value in _numbers_of(document) if not _is_finite(value)), "")
    return InputError(f"{where}: {path}" if path else where, number, FINITE)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


def _numbers_of(document: Any) -> Iterator[tuple[str, float]]:
    """Every number and the keys that lead to it, joined by dots."""
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, (int, float)):
            yield path, value
        elif isinstance(value, (Mapping, list, tuple)):
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            inner = [(f"{path}.{key}" if path else str(key), item) for key, item in pairs]
            pending += reversed(inner)
