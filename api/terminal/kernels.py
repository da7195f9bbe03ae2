"""Kernels that a run picked, in one short paragraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kernels_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format the choices of kernels by family; empty without choices.

    Args:
        rows: the document's choices, one for every shape; those of a family that differ in shape
            alone are named once.
    """
    by_reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        name = _name(row, _picked_of(rows, row["family"]))
        by_reasons.setdefault(_reasons(row), {})[name] = None
    clauses = [", ".join(names) + reasons for reasons, names in by_reasons.items()]
    return f"kernels: {'; '.join(clauses)}" if clauses else ""


def _picked_of(rows: Sequence[dict[str, Any]], family: str) -> set[str]:
    return {row["picked"] for row in rows if row["family"] == family}


def _name(row: dict[str, Any], picked: set[str]) -> str:
    name = f"{row['family']} {row['picked']}"
    return f"{name} for {row['dtype']}" if len(picked) > 1 else name


def _reasons(row: dict[str, Any]) -> str:
    reasons = ", ".join(f"not {other}: {why}" for other, why in row["passed_over"].items())
    return f" ({reasons})" if reasons else ""
