"""Whole numbers as a person types them: ASCII digits, and not more of them than any size needs."""

from __future__ import annotations

import re

DIGITS = re.compile(r"[0-9]{1,12}")
"""``str.isdigit`` also takes ``²`` and other scripts' digits, and ``int`` refuses 4301 digits."""


def whole_number(text: str) -> int | None:
    """The number that ``text`` writes in one to twelve ASCII digits; None if it does not."""
    return int(text) if DIGITS.fullmatch(text) else None
