"""Values of the right type: what flags have by construction, Python callers must be told."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from ...spec.errors import InputError

TYPE_NAMES = {"int": "a whole number", "float": "a finite number", "str": "a text"}


def check_types(record: Any) -> None:
    """Refuse fields of a dataclass annotated ``int``, ``float`` or ``str`` (or None) that are not.

    ``True`` is no number, and ``64.0`` and ``"64"`` are no whole ones.

    Raises:
        InputError: the first wrong field, named as its flag.
    """
    for item in fields(record):
        value, kind = getattr(record, item.name), str(item.type).split(" ")[0]
        if value is not None and kind in TYPE_NAMES and not _has_type(value, kind):
            flag = f"--{item.name.replace('_', '-')}"
            raise InputError(flag, repr(value), TYPE_NAMES[kind], _nearest(value, kind))


def _has_type(value: Any, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int)
    return isinstance(value, (int, float)) and math.isfinite(value)


def _nearest(value: Any, kind: str) -> str | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if kind == "str" or isinstance(value, bool) or not math.isfinite(number):
        return None
    return str(round(number)) if kind == "int" else f"{number:g}"
