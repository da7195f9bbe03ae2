"""Allocation traces of a plan's stages, from steps without contents.

``python -m shardwright.executor.train.address_rehearsal < PLAN.json`` rehearses the first rank of
every stage, whose other ranks make the same requests: only experts' sizes depend on values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...spec.errors import NotBuiltError, ShardwrightError
from ...spec.plan.plan import Plan, load_plan
from ...spec.plan.relative_position_bias import table_blocks
from ...spec.program_values import address_technique
from ...spec.report.allocation_trace import AllocationTrace
from ..stage.options import BuildOptions
from ..technique import RunTechniques, TechniqueHooks, TechniqueRun
from ..techniques import SHIPPED
from ..tracing.allocations import AllocationMarks
from ..tracing.recorder import LiveBytes
from .dry_run import HOST, stepped_engine


def rehearse_addresses(
    plan: Plan, flash: bool = True, techniques: RunTechniques = SHIPPED
) -> list[AllocationTrace]:
    """Requests of a step of each stage, whether the plan has planned addresses or not."""
    flash = flash and not table_blocks(plan.model)
    planned, runs = with_address_hooks(plan, techniques)
    return [_trace(planned, stage, flash, runs) for stage in range(len(plan.program.stages))]


def with_address_hooks(
    plan: Plan, techniques: RunTechniques
) -> tuple[Plan, Callable[[TechniqueHooks], RunTechniques]]:
    """The plan with planned addresses, and techniques whose run of them has given hooks."""
    technique = address_technique(techniques.values)
    if technique is None:
        raise NotBuiltError("planned addresses without a technique that has them")
    values = {technique.name: technique.value(), **plan.program.techniques}
    program = replace(plan.program, techniques=values)

    def runs(hooks: TechniqueHooks) -> RunTechniques:
        return techniques.with_run(TechniqueRun(name=technique.name, start=lambda context: hooks))

    return replace(plan, programs=(program,)), runs


def _trace(
    plan: Plan, stage: int, flash: bool, runs: Callable[[TechniqueHooks], RunTechniques]
) -> AllocationTrace:
    marks = AllocationMarks()
    options = BuildOptions(seed=0, device=HOST, flash=flash, prefetch=False, techniques=runs(marks))
    with stepped_engine(plan, stage, options) as engine:
        live = LiveBytes(engine.resident_tensors(), pauses=False)
        marks.sections.clear()
        marks.live = live
        with live, live.following_resizes():
            engine.dry_run_step()
        return marks.trace()


def main() -> int:
    """Read a plan, print its traces; return the exit code."""
    try:
        plan = load_plan(sys.stdin.read(), "PLAN.json")
        documents: list[dict[str, Any]] = [t.to_document() for t in rehearse_addresses(plan)]
        json.dump(documents, sys.stdout, allow_nan=False)
    except ShardwrightError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
