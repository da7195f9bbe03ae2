"""One table for a stage of several device groups: what any of them makes of a strategy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..tables.arrays import Floats
from ..tables.option_table import OptionTable
from .option_tables import RankClassTables


def joint_table(tables: RankClassTables, budgets: Sequence[float]) -> OptionTable:
    """One table for a stage: the slowest class's seconds, bytes of the least budget at most."""
    if len(tables) == 1:
        return tables[0]
    least = min(budgets)
    scales = [least / budget for budget in budgets]

    def bytes_of(name: str) -> Floats:
        each = [getattr(t, name) * scale for t, scale in zip(tables, scales, strict=True)]
        found: Floats = np.maximum.reduce(each)
        return found

    first = tables[0]
    return OptionTable(
        first.strategies,
        np.maximum.reduce([t.microbatch_s for t in tables]),
        np.maximum.reduce([t.step_bound_s for t in tables]),
        np.maximum.reduce([t.step_estimate_s for t in tables]),
        bytes_of("resident_bytes"),
        bytes_of("kept_bytes"),
        bytes_of("extra_bytes"),
        first.layouts,
    )
