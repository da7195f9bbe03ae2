"""Numbers of tokens as people write them: ``2T``, ``15e12``, ``300B``, ``10_000M``."""

from __future__ import annotations

import re
from decimal import Decimal

from ..errors import InputError
from ..limits import MAX_TRAINING_TOKENS

UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
ALLOWED = "a number of tokens from 1 to 1e18, such as 300B, 2T or 15e12"
USUAL = "300B"
NUMBER = r"[0-9][0-9_]{0,23}(?:\.[0-9]{1,12})?(?:e\+?[0-9]{1,2})?"
TOKENS = re.compile(rf"({NUMBER})\s*([kmbgt]?)", re.IGNORECASE | re.ASCII)
NEAR_TOKENS = re.compile(rf"[^0-9]*({NUMBER})\s*([kmbgt]?)", re.IGNORECASE | re.ASCII)


def token_count(value: object, where: str) -> int:
    """The number of tokens that a text or a number means.

    Args:
        value: as typed, or a whole number.
        where: name of the value in an error.

    Raises:
        InputError: not a whole number of tokens, or one out of range.
    """
    text = f"{value:.0f}" if isinstance(value, float) and value == value // 1 else str(value)
    match = TOKENS.fullmatch(text.strip())
    number = None if match is None or isinstance(value, bool) else _number(match)
    if number is None or number != int(number) or not 1 <= number <= MAX_TRAINING_TOKENS:
        raise InputError(where, value, ALLOWED, _nearest(text))
    return int(number)


def _number(match: re.Match[str]) -> Decimal:
    return Decimal(match[1].replace("_", "")) * UNITS[match[2].casefold()]


def _nearest(text: str) -> str:
    match = NEAR_TOKENS.match(text.replace(",", ""))
    if match is None:
        return USUAL
    number = _number(match)
    if not 1 <= number <= MAX_TRAINING_TOKENS:
        return "1" if number < 1 else "1e18"
    return str(int(number)) if number != int(number) else match[1] + match[2].upper()
