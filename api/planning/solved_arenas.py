"""Memory of a prediction with arenas that were solved on this machine."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.plan.plan import Plan
from ...spec.program_values import plans_addresses
from ...spec.report.planned_addresses import PlannedAddresses, kept_addresses
from ...spec.report.report import Assumption, MemoryRow, Prediction
from ...spec.technique import Values
from ...spec.units import format_bytes

GAPS = "fragmentation"


def with_solved_arenas(
    plan: Plan, prediction: Prediction, rule: MemoryRule, techniques: Values
) -> tuple[Prediction, tuple[Assumption, ...]]:
    """A prediction with the gaps of solved addresses in place of assumed ones, and a note of it.

    Both stay as they are where a plan's addresses were not solved yet, or none are planned.
    """
    if not plans_addresses(plan.program.techniques, techniques):
        return prediction, ()
    kept = kept_addresses(plan.hash)
    if kept is None:
        return prediction, ()
    memory = tuple(_with_gaps(plan, row, kept) for row in prediction.memory)
    feasible = all(rule.excess_bytes(row) <= 0 for row in memory)
    largest = max(row.by[GAPS] for row in memory if row.tier == "hbm")
    why = "solved addresses that this machine keeps, in place of a part of live bytes"
    note = Assumption(path=f"memory.{GAPS}", value=format_bytes(largest), why=why)
    return replace(prediction, memory=memory, feasible=feasible), (note,)


def _with_gaps(plan: Plan, row: MemoryRow, kept: PlannedAddresses) -> MemoryRow:
    """A row with the largest gaps of a rank of its stage."""
    if row.tier != "hbm":
        return row
    widths = [stage.device_count for stage in plan.program.stages]
    first = sum(widths[: row.stage])
    ranks = [kept.rank(number) for number in range(first, first + widths[row.stage])]
    gaps = max(rank.arena_bytes - rank.live_bytes for rank in ranks)
    reserved = row.reserved_bytes - row.by[GAPS] + gaps
    return replace(row, reserved_bytes=reserved, by={**row.by, GAPS: gaps})
