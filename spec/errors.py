"""Errors for users: one line and an exit code each.

ShardwrightError
├── InputError       exit 2   something typed or read is not usable
│   ├── MissingInputError     inputs that are all needed; names them at once
│   └── UnknownKeyError       a document's key; lists every known one
├── NotBuiltError    exit 2   a legal request that this version does not serve yet
├── InfeasibleError  exit 3   no legal plan exists; names the resource and the smallest change
└── RunError         exit 4   a run started and failed
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Word = TypeVar("Word", bound=str)

LONGEST_FIELD, LONGEST_PART = 500, 700
"""Characters of a field name and of allowed values; both may quote what a person wrote."""


class ShardwrightError(Exception):
    """Base of every error meant for a user. ``str()`` is one line."""

    exit_code = 1


class InputError(ShardwrightError):
    """Bad input: field, given value, allowed values and nearest fix.

    Args:
        field: path of the value as the user wrote it, such as ``--tp`` or ``model.heads``.
        value: the offending one (shortened when long).
        allowed: what would be accepted, in words.
        nearest: the closest acceptable value or values, if one can be named.
    """

    exit_code = 2

    def __init__(self, field: str, value: object, allowed: str, nearest: object = None) -> None:
        self.field = field
        self.given = value
        self.allowed = allowed
        self.nearest = nearest
        hint = "" if nearest in (None, "") else f"; nearest: {_short(nearest)}"
        where, what = _short(field, LONGEST_FIELD), _short(allowed, LONGEST_PART)
        super().__init__(f"{where}: got {_short(value)}; allowed: {what}{hint}")


class MissingInputError(InputError):
    """Needed inputs that were left out, with usual values for all of them.

    Args:
        usual: a usual value by flag, such as ``{"--seq-len": 4096}``.
        command: a whole command that has them; the flags alone if not known.
    """

    def __init__(self, usual: Mapping[str, int], command: str = "") -> None:
        self.usual = dict(usual)
        values = " and ".join(map(str, usual.values()))
        kind = "positive whole numbers" if len(usual) > 1 else "a positive whole number"
        allowed = f"{kind}, such as {values}"
        super().__init__(" and ".join(usual), "nothing", allowed, self.flags)
        if command:
            self.nearest = command
            self.args = (f"{self.field}: got nothing; allowed: {allowed}; nearest: {command}",)

    @property
    def flags(self) -> str:
        """The flags with their usual values."""
        return " ".join(f"{flag} {value}" for flag, value in self.usual.items())


class UnknownKeyError(InputError):
    """A key that a document may not have; the line lists every key that it may.

    Args:
        where: the document, as the user named it.
        key: the unknown key.
        known: every known one.
        nearest: the one that was meant, if it can be told.
    """

    def __init__(self, where: str, key: str, known: Iterable[str], nearest: str = "") -> None:
        names = list(known)
        near = nearest or nearest_name(key, names)
        super().__init__(where, key, "only known keys: " + ", ".join(names), near)
        head = str(self).partition("; allowed: ")[0]
        self.args = (f"{head}; allowed: {self.allowed}" + (f"; nearest: {near}" if near else ""),)


class NotBuiltError(ShardwrightError):
    """A documented request that this version does not serve yet."""

    exit_code = 2

    def __init__(self, what: str, instead: str = "") -> None:
        line = f"{_short(what, LONGEST_PART)} is not built yet"
        super().__init__(line + (f"; {_short(instead, LONGEST_PART)}" if instead else ""))


class InfeasibleError(ShardwrightError):
    """No legal plan: resource, place, amount and the smallest change that fits.

    Args:
        what: the resource, the place and the amount.
        change: the smallest change that fits, if known.
        need_bytes: memory per device of the smallest plan found, where memory is short.
        proven: True if no plan of the space fits; else none was found within the limits.
        late: True if a deadline ended the search.
        by: bytes by state of the fullest device of that plan, with the margin for risk.
    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        change: str = "",
        need_bytes: float | None = None,
        proven: bool = False,
        late: bool = False,
        by: Mapping[str, float] | None = None,
    ) -> None:
        self.what = what
        self.by = by
        self.late = late
        self.need_bytes = need_bytes
        self.proven = proven
        super().__init__(f"{what}; smallest change that fits: {change}" if change else what)


class RunError(ShardwrightError):
    """A started run that failed: rank and cause, in one line."""

    exit_code = 4


def _short(value: object, limit: int = 120) -> str:
    """One printable line of at most ``limit`` characters; control characters are escaped."""
    text = value if isinstance(value, str) else repr(value)
    text = printable(" ".join(text.split()) or "''")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """The text with every character that a terminal acts on escaped.

    Those of escape sequences, line ends, tabs, marks of writing direction, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest_name(text: str, choices: Iterable[str], count: int = 3) -> str:
    """The names closest to ``text``, best first, comma-separated.

    '' if none is close.
    """
    names: Sequence[str] = list(choices)
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(text.casefold(), list(folded), n=count, cutoff=0.5)
    return ", ".join(folded[name] for name in close)


def one_of(field: str, value: str, allowed: Sequence[Word]) -> Word:
    """The word of ``allowed`` that equals ``value``.

    Raises:
        InputError: it is none of them.
    """
    for word in allowed:
        if word == value:
            return word
    raise InputError(field, value, ", ".join(allowed), nearest_name(value, allowed))


def nearest_divisor(number: int, dividend: int) -> int:
    """The divisor of ``dividend`` closest to ``number`` (the smaller on ties)."""
    low = [d for d in range(1, math.isqrt(dividend) + 1) if dividend % d == 0]
    divisors = low + [dividend // d for d in low]
    return min(divisors, key=lambda d: (abs(d - number), d))
