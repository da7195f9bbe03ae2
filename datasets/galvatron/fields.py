"""Fields of a Galvatron profile file.

Numbers by key, faults named by file and key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError, nearest_name

LARGEST = 1e12
"""Above any time, size or rate that a file can mean."""


class Fields:
    """The keys of one JSON object of a profile file."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    @classmethod
    def of_file(cls, path: Path) -> Fields:
        """The object in a file.

        Raises:
            InputError: it cannot be read or is no JSON object.
        """
        document = parse_json(read_text(path, "a Galvatron profile file"), str(path))
        if not isinstance(document, dict):
            raise InputError(str(path), type(document).__name__, "a JSON object")
        return cls(str(path), document)

    def inner(self, key: str) -> Fields:
        """The object under a key.

        Raises:
            InputError: there is none.
        """
        value = self._value(key)
        if not isinstance(value, dict):
            raise InputError(f"{self.where}: {key}", value, "a JSON object")
        return Fields(f"{self.where}: {key}", value)

    def number(self, key: str) -> float:
        """The positive number under a key.

        Raises:
            InputError: there is none.
        """
        value = self._value(key)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 < value < LARGEST:
            raise InputError(f"{self.where}: {key}", value, "a positive number")
        return float(value)

    def matching(self, *patterns: str, ignored: str = r"(?!)") -> list[tuple[re.Match[str], str]]:
        """Every key as the first pattern's match, in the file's order.

        Raises:
            InputError: a key that is neither.
        """
        matches = []
        for key in self.values:
            match = next((m for p in patterns if (m := re.fullmatch(p, key))), None)
            if match is not None:
                matches.append((match, key))
            elif not re.fullmatch(ignored, key):
                raise InputError(self.where, key, "keys that Galvatron writes there")
        return matches

    def by_degree(self, key: str) -> dict[int, float]:
        """Numbers by parallel degree under a key.

        Raises:
            InputError: a key that is no degree, or a value that is no number.
        """
        inner = self.inner(key)
        return {int(m[0]): inner.number(name) for m, name in inner.matching(r"[1-9]\d{0,6}")}

    def _value(self, key: str) -> Any:
        if key not in self.values:
            near = nearest_name(key, self.values)
            raise InputError(f"{self.where}: {key}", "nothing", "this key", near)
        return self.values[key]
