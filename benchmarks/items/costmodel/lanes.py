"""Work of techniques on lanes: events against passes, and bounds, on random plans."""

from __future__ import annotations

from itertools import islice
from typing import Any

from harness.shapes import PLANNING, Evidence, Item, judged, reported
from harness.work import Work
from oracles.bound_checks import ROUNDING, check_bounds
from oracles.brute_force import simulator_of
from toys.lane_spaces import LANE_CLUSTERS, OFFLOADED, PARKED, lane_plans, lane_space

from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.simulation.event_simulation import simulate_events

PIECES, PLANS, BOUNDED = 30, 10, 170
"""Pieces, and plans of each that are simulated twice, or held against bounds."""
BLOCK, EXACT = 1000, 1e-9


def run(work: Work) -> Evidence:
    """Random plans with copies, sharding's traffic and the host's work beside layers."""
    first = work.first_seed(BLOCK)
    pieces = work.pieces([f"{first + n}" for n in range(work.sized(PIECES, 2))], _check)
    apart = max(piece["apart"] for piece in pieces)
    faults = [fault for piece in pieces for fault in piece["faults"]]
    plans, bounded = PLANS * len(pieces), BOUNDED * len(pieces)
    rows = [
        judged(
            "step time of random plans with lanes, event by event against pass by pass",
            f"{apart:.1e} apart at most, {plans} plans",
            f"{EXACT:g}",
            apart <= EXACT,
            apart=apart,
            plans=plans,
        ),
        judged(
            "bounds above a plan with techniques on lanes",
            f"{len(faults)} ({bounded:,} plans drawn)" + (f" ({faults[0]})" if faults else ""),
            f"0 (to {ROUNDING:g})",
            not faults,
            plans=bounded,
            faults=len(faults),
        ),
    ]
    for name in (PARKED, OFFLOADED):
        share = sum(piece["shown"][name] for piece in pieces) / len(pieces)
        rows.append(reported(f"share of the steps that `{name}` adds", f"{share:.1%}", share=share))
    return Evidence(rows=rows)


def _check(key: str) -> dict[str, Any]:
    seed = int(key)
    cluster = LANE_CLUSTERS[seed % len(LANE_CLUSTERS)]
    space = lane_space(cluster)
    simulator, apart = simulator_of(space), 0.0
    shown = {PARKED: 0.0, OFFLOADED: 0.0}
    for plan in islice(lane_plans(seed, cluster), PLANS):
        by_pass = simulator.run(plan)
        if by_pass is None:
            raise RuntimeError("a simulation without a limit ends")
        by_span, _ = simulate_events(simulator, plan)
        apart = max(apart, abs(by_span.step_time_s / by_pass.step_time_s - 1))
        terms = breakdown(by_pass)
        for name in shown:
            shown[name] += terms.get(name, 0.0) / by_pass.step_time_s / PLANS
    found = check_bounds(space, BOUNDED, seed)
    return {"apart": apart, "shown": shown, "faults": found.faults}


ITEM = Item(
    name="lanes",
    shows="What techniques do beside layers takes as long event by event, and no bound forgets it.",
    target="1e-9 on 300 random plans with lanes; no bound above one of 5,000.",
    run=run,
    reads=(*PLANNING, "tests/support/oracles/brute_force.py",
           "tests/support/oracles/bound_checks.py", "tests/support/toys/lane_spaces.py",
           "tests/support/toys/technique_spaces.py", "tests/support/toys/parking_value.py",
           "tests/support/toys/parking_price.py", "tests/support/toys/parking_choice.py",
           "tests/support/generators/random_plans.py"),
)  # fmt: skip
