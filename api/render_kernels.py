"""Which kernels a run picked, in one short paragraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kernels_text(rows: Sequence[dict[str, Any]]) -> str:
    """A clause a family: what was picked, and why no better one; empty without choices.

    Args:
        rows: the document's choices, one for every shape; those of a family that differ in shape
            alone are one clause.
    """
    clauses = dict.fromkeys(_clause(row, _picked_of(rows, row["family"])) for row in rows)
    return f"kernels: {'; '.join(clauses)}" if clauses else ""


def _picked_of(rows: Sequence[dict[str, Any]], family: str) -> set[str]:
    return {row["picked"] for row in rows if row["family"] == family}


def _clause(row: dict[str, Any], picked: set[str]) -> str:
    """One choice in words, with its type where the family's choices differ."""
    name = f"{row['family']} {row['picked']}"
    if len(picked) > 1:
        name += f" for {row['dtype']}"
    reasons = ", ".join(f"not {other}: {why}" for other, why in row["passed_over"].items())
    return f"{name} ({reasons})" if reasons else name
