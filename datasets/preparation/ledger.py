"""Ledger: what became of every document, byte and token of a stage, by domain.

In every row, what came in and what was added is what went out, was cut and was dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..recipes.text_document import TextDocument

UNITS = ("documents", "tokens", "bytes")
Amounts = dict[str, int]
Row = dict[str, Any]


def amounts(document: TextDocument) -> Amounts:
    """One document, in every unit."""
    size = len(document.text.encode("utf-8", "surrogatepass"))
    return {"documents": 1, "tokens": document.tokens, "bytes": size}


def empty_row() -> Row:
    """A row without documents."""
    zeros = dict.fromkeys(UNITS, 0)
    return {
        "in": zeros.copy(),
        "out": zeros.copy(),
        "added": zeros.copy(),
        "cut": {},
        "dropped": {},
    }


def record(row: Row, before: TextDocument, after: list[TextDocument], reason: str) -> None:
    """Add a document, and what a stage made of it, to a row."""
    given, left = amounts(before), dict.fromkeys(UNITS, 0)
    for document in after:
        _add(left, amounts(document))
    _add(row["in"], given)
    _add(row["out"], left)
    less = {unit: max(0, given[unit] - left[unit]) for unit in UNITS}
    more = {unit: max(0, left[unit] - given[unit]) for unit in UNITS}
    _add(row["added"], more)
    if any(less.values()):
        place = row["cut"] if after else row["dropped"]
        entry = place.setdefault(reason, {"texts": 0, **dict.fromkeys(UNITS, 0)})
        entry["texts"] += 1
        _add(entry, less)


def _add(to: Amounts, more: Amounts) -> None:
    for unit in UNITS:
        to[unit] += more[unit]


def summed(rows: Iterable[Row]) -> Row:
    """The sum of rows."""
    total = empty_row()
    for row in rows:
        for name in ("in", "out", "added"):
            _add(total[name], row[name])
        for name in ("cut", "dropped"):
            for reason, entry in row[name].items():
                mine = total[name].setdefault(reason, {"texts": 0, **dict.fromkeys(UNITS, 0)})
                mine["texts"] += entry["texts"]
                _add(mine, entry)
    return total


def is_balanced(row: Row) -> bool:
    """True if every document, token and byte is accounted for."""
    for unit in UNITS:
        gone = sum(entry[unit] for name in ("cut", "dropped") for entry in row[name].values())
        if row["in"][unit] + row["added"][unit] != row["out"][unit] + gone:
            return False
    return True
