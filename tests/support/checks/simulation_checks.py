"""A simulated step against the second simulation of the same passes."""

from __future__ import annotations

import pytest
from generators.samples import Sample
from oracles.event_oracle import ends

from shardwright.costmodel.lowering.stage_passes import concurrent_groups, kind_of
from shardwright.costmodel.simulation.pipeline_timing import MessageTimes
from shardwright.spec.schedules.stage_order import Pass


def check_starts(s: Sample) -> None:
    """The start of every pass, for stacks whose messages are not in line.

    Passes that overlap end together; their time is shared out evenly, for only its sum counts.
    """
    messages = MessageTimes(s.plan, s.simulation.chunks, s.simulator.prices)
    if messages.blocking:
        return
    runs, last = s.simulation.stages, s.plan.program.schedule.microbatches - 1
    shares: dict[tuple[int, Pass], float] = {}
    tails: dict[tuple[int, Pass], float] = {}
    for run in runs:
        for items in concurrent_groups(run.order):
            time = run.time_of(tuple(kind_of(item, last) for item in items))
            shares |= {(run.stage, item): time.time_s / len(items) for item in items}
            tails |= {(run.stage, item): time.tail_s for item in items}
    travel = {
        (f, p): messages.seconds(f, p) for f in (True, False) for p in range(messages.positions)
    }
    kind, orders = s.plan.program.schedule.kind, [run.order for run in runs]
    expected = ends(
        orders,
        lambda stage, item: shares[stage, item],
        travel,
        kind,
        lambda stage, item: tails[stage, item],
    )
    for run in runs:
        starts = iter(run.starts_s)
        for items in concurrent_groups(run.order):
            for item in items:
                end_s = next(starts) + sum(shares[run.stage, i] for i in items)
                assert end_s == pytest.approx(expected[run.stage, item], rel=1e-9, abs=1e-15)
