"""One option table for a stage of several device groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..tables.arrays import Floats
from ..tables.option_table import OptionTable
from .option_tables import RankClassTables


def joint_table(tables: RankClassTables, budgets: Sequence[float]) -> OptionTable:
    """Slowest class's seconds, and maximum bytes scaled to the minimum budget."""
    if len(tables) == 1:
        return tables[0]
    least = min(budgets)
    scales = [least / budget for budget in budgets]

    def bytes_of(name: str) -> Floats:
        scaled = [getattr(t, name) * scale for t, scale in zip(tables, scales, strict=True)]
        most: Floats = np.maximum.reduce(scaled)
        return most

    first = tables[0]
    return OptionTable(
        first.strategies,
        np.maximum.reduce([t.microbatch_s for t in tables]),
        np.maximum.reduce([t.step_bound_s for t in tables]),
        np.maximum.reduce([t.step_estimate_s for t in tables]),
        np.maximum.reduce([t.reductions_s for t in tables]),
        bytes_of("resident_bytes"),
        bytes_of("kept_bytes"),
        bytes_of("extra_bytes"),
        first.layouts,
    )
