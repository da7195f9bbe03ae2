"""TypedKeys: strict reading of a document's keys.

``true``, ``"512"`` and ``512.0`` are not whole numbers here: each is refused with one line that
names the key, its value, the allowed values and the nearest of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import InputError, UnknownKeyError, nearest_name
from ..limits import MAX_WIDTH

LARGEST_NUMBER = 1e300
FLAG_TEXTS = {
    **dict.fromkeys(("true", "yes", "on", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "0"), "false"),
}
"""Usual texts for true and false, and the JSON value that they stand for."""
NUMBER_TEXT = re.compile(r"\s*[-+]?[\d_,.]+(e[-+]?\d{1,3})?\s*", re.IGNORECASE)


class TypedKeys:
    """The keys of ``document``, called ``where`` in errors."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.document = document
        self.where = where

    def has(self, *keys: str) -> str | None:
        """The first of ``keys`` that is there and not null."""
        return next((key for key in keys if self.document.get(key) is not None), None)

    def refuse_unknown(
        self, keys: Collection[str], elsewhere: Mapping[str, str] | None = None
    ) -> None:
        """Refuse document keys not in ``keys``.

        Args:
            keys: the known ones.
            elsewhere: names that other programs have for them.

        Raises:
            UnknownKeyError: for the first such key, with all known ones and the nearest.
        """
        for key in self.document:
            if key not in keys:
                meant = (elsewhere or {}).get(str(key), "")
                raise UnknownKeyError(self.where, str(key), keys, meant)

    def require(self, keys: Iterable[str]) -> None:
        """Refuse missing keys.

        Raises:
            InputError: for all of ``keys`` that are missing or null.
        """
        needed = list(keys)
        missing = [key for key in needed if self.document.get(key) is None]
        if missing:
            allowed = "a value (the key is required)"
            if len(needed) > 1:
                allowed = f"values for {', '.join(needed)} (the keys are required)"
            raise InputError(f"{self.where}: {', '.join(missing)}", "nothing", allowed)

    def count(self, key: str, least: int = 1, most: int = MAX_WIDTH) -> int:
        """A whole number between ``least`` and ``most``."""
        value = self.document.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        allowed = f"a whole number of at least {least}"
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            allowed = f"a whole number of at most {most}"
        raise self.error(key, allowed, _nearest_count(value, least, most))

    def number(self, key: str, least: float = 0.0, exclusive: bool = True) -> float:
        """A finite number above ``least`` (or at least it, when not ``exclusive``)."""
        value = self.document.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            in_range = value > least or (value == least and not exclusive)
            if in_range and abs(value) < LARGEST_NUMBER:
                return float(value)
        allowed = f"a number {'above' if exclusive else 'of at least'} {least:g}"
        raise self.error(key, allowed, _nearest_number(value, least))

    def flag(self, key: str) -> bool:
        """``true`` or ``false``."""
        value = self.document.get(key)
        if isinstance(value, bool):
            return value
        raise self.error(key, "true or false", FLAG_TEXTS.get(str(value).casefold()))

    def choice(self, key: str, allowed: Collection[str]) -> str:
        """One of ``allowed``."""
        value = self.document.get(key)
        if isinstance(value, str) and value in allowed:
            return value
        near = nearest_name(str(value), allowed)
        raise self.error(key, "one of " + ", ".join(allowed), near)

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self.document.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise self.error(key, "a name", json.dumps(str(value)) if value is not None else None)

    def error(self, key: str, allowed: str, nearest: object = None) -> InputError:
        """The error for the value of ``key``, quoted as JSON."""
        return InputError(
            f"{self.where}: {key}", json_text(self.document.get(key)), allowed, nearest
        )


def json_text(value: Any) -> str:
    """The value as JSON, so that 512, "512" and true look different."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def _nearest_count(value: Any, least: int, most: int) -> int | None:
    number = _as_number(value)
    if number is None or not math.isfinite(number):
        return None
    count = abs(round(number)) if number < 0 else round(number)
    return max(least, min(most, count))


def _nearest_number(value: Any, least: float) -> str | None:
    number = _as_number(value)
    return f"{max(least, abs(number)):g}" if number and math.isfinite(number) else None


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < LARGEST_NUMBER else math.inf
    if not isinstance(value, str) or not NUMBER_TEXT.fullmatch(value):
        return None
    try:
        return float(value.replace(",", "").replace("_", ""))
    except ValueError:
        return None
