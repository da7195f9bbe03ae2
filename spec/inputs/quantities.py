"""Typed quantities: ``40GiB``, ``50GB/s``, ``5us``, ``2x``, ``+10%``.

A quantity is absolute, with the unit of its kind, or a factor on the current value. Values that
are numbers already (Python, JSON) are SI. Sizes are read as by ``--memory-gib``, in upper or
lower case; of rates ``GB/s`` counts bytes and ``Gbit/s`` bits, and ``Gb/s``, which people use for
both, is refused with both readings.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from ..errors import InputError

QuantityKind = Literal["bytes", "bytes_per_s", "flops_per_s", "seconds", "count", "number"]
LEAST_FACTOR, LARGEST_FACTOR = 1e-6, 1e6
NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|\.[0-9]+"
FACTOR = re.compile(rf"(?:({NUMBER})\s*[x×]|[x×]\s*({NUMBER}))", re.IGNORECASE | re.ASCII)
PERCENT = re.compile(rf"([+-]?)\s*({NUMBER})\s*%", re.IGNORECASE | re.ASCII)
WITH_UNIT = re.compile(rf"({NUMBER})\s*([a-zµμ/]*)", re.IGNORECASE)
DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)

_BYTES = {"b": 1.0}
for _power, _letter in enumerate("kmgtp", start=1):
    _BYTES |= {f"{_letter}b": 1000.0**_power, f"{_letter}ib": 1024.0**_power}
_BITS = {"gbit/s": 1e9 / 8, "gbps": 1e9 / 8, "mbit/s": 1e6 / 8, "tbit/s": 1e12 / 8}
_FLOPS = {"flop/s": 1.0, "flops": 1.0}
for _power, _letter in enumerate("gtpe", start=3):
    _FLOPS |= {f"{_letter}flop/s": 1000.0**_power, f"{_letter}flops": 1000.0**_power}
UNITS: dict[QuantityKind, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {f"{unit}/s": size for unit, size in _BYTES.items()} | _BITS,
    "flops_per_s": _FLOPS,
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9},
    "count": {"": 1.0},
    "number": {"": 1.0},
}
"""SI amounts of each unit, in lower case."""
USUAL_UNIT: dict[QuantityKind, str] = {
    "bytes": "GiB",
    "bytes_per_s": "GB/s",
    "flops_per_s": "TFLOP/s",
    "seconds": "us",
    "count": "",
    "number": "",
}
ALLOWED: dict[QuantityKind, str] = {
    "bytes": "bytes with their unit (40GiB)",
    "bytes_per_s": "a rate with its unit (50GB/s, 400Gbit/s)",
    "flops_per_s": "a rate with its unit (989TFLOP/s)",
    "seconds": "seconds with their unit (5us)",
    "count": "a whole number (512)",
    "number": "a number (1.2)",
}
BITS_OR_BYTES = re.compile(r"([kmgt])b/s|([kmgt])ib/s", re.IGNORECASE)


def quantity(kind: QuantityKind, value: str | float, was: float, where: str) -> float:
    """Value of ``value`` in SI.

    Args:
        kind: the physical quantity.
        value: text, or a number in SI.
        was: the value that a factor multiplies.
        where: name of the value in an error.

    Raises:
        InputError: neither an amount of this kind nor a factor, or one out of range.
    """
    amount = _amount(kind, value, was, where)
    if kind == "count" and math.isfinite(amount):
        _check_whole_number(value, amount, where)
    elif not (math.isfinite(amount) and LEAST_FACTOR <= amount / was <= LARGEST_FACTOR):
        allowed = f"{_allowed(kind)}, above nil and at most {LARGEST_FACTOR:g} times what there is"
        raise InputError(where, value, allowed, "2x")
    return amount


def _check_whole_number(value: object, amount: float, where: str) -> None:
    if amount < 1:
        near = max(1, round(abs(amount)))
        raise InputError(where, value, "a whole number of at least 1, or a factor (2x)", near)
    if amount != round(amount):
        low = math.floor(amount)
        allowed = f"a whole number; this is {amount:g}"
        raise InputError(where, value, allowed, f"{low} or {low + 1}")


def _allowed(kind: QuantityKind) -> str:
    return f"{ALLOWED[kind]}, or a factor (2x, +10%)"


def _amount(kind: QuantityKind, value: str | float, was: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(where, value, _allowed(kind))
    if not isinstance(value, str):
        return float(value)
    text = value.strip()
    if match := FACTOR.fullmatch(text):
        return was * float(match[1] or match[2])
    if match := PERCENT.fullmatch(text):
        share = float(match[2]) / 100
        if not match[1]:
            raise InputError(where, value, _allowed(kind), f"{share:g}x or +{match[2]}%")
        return was * (1 + share if match[1] == "+" else 1 - share)
    if kind == "count" and DIGITS.fullmatch(text):
        return float(text)
    match = WITH_UNIT.fullmatch(text)
    size = None if match is None or kind == "count" else _unit(kind, match[2])
    if match is None or size is None:
        raise InputError(where, value, _allowed(kind), _nearest(kind, text))
    return float(match[1]) * size


def _unit(kind: QuantityKind, unit: str) -> float | None:
    """The SI amount of a unit.

    None if it is none of this kind, or ambiguous.
    """
    if kind == "bytes_per_s" and BITS_OR_BYTES.fullmatch(unit) and "B" not in unit:
        return None
    return UNITS[kind].get(unit.casefold().replace("μ", "µ"))


def _nearest(kind: QuantityKind, text: str) -> str:
    match = WITH_UNIT.match(text.lstrip("+-"))
    if match is None:
        return "2x"
    number, unit = match[1], match[2]
    if kind == "count":
        return f"{max(1, round(float(number)))}"
    if kind == "bytes_per_s" and BITS_OR_BYTES.fullmatch(unit):
        letter = unit[0].upper()
        return f"{number}{letter}B/s or {number}{letter}bit/s"
    return f"{number}{USUAL_UNIT[kind]}"
