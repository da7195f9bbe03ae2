"""Numbers of families: the search holds their ends, bounds hold for all, plans are refined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from generators.plan_cases import Sizes
from published.planning import RULE
from toys.levers import FAMILY, KNOWN, PARKED

from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.candidates.evaluator import Decision
from shardwright.planner.solve.engine import make_search
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.spec.technique_values import with_value

BLOCKS = 4
PINS = ("tp=1", "cp=1", "pp=1", "recompute=none", "shard=zero0", "micro_batch=1")
GRID = 40


def problem(cap_bytes: float = 80e9) -> Problem:
    """A small model whose blocks may park their inputs, and nothing else is free."""
    model = Sizes(blocks=BLOCKS, hidden=512, ffn=2048, vocab=512).model()
    asked = {"cluster": "1x2xA100-80GB", "global_batch": 8, "seq_len": 2048, "dtype": "bf16"}
    found = resolve(Inputs(model=model, host_gib=16, **asked))  # type: ignore[arg-type]
    (group,) = found.cluster.groups
    memory = replace(group.memory, hbm_bytes=int(cap_bytes))
    cluster = replace(found.cluster, groups=(replace(group, memory=memory),))
    alone = replace(
        KNOWN, values=KNOWN.values[:1], prices=KNOWN.prices[:1], choices=KNOWN.choices[:1]
    )
    return replace(found.on_cluster(cluster), techniques=alone)


def reserved(word: str) -> int:
    """Bytes of the device with all blocks at one word."""
    asked = problem()
    pins = resolve_pins((*PINS, f"{PARKED}={word}"), asked)
    rows = solve(asked, SolveOptions(pins=pins)).prediction.memory
    return max(row.reserved_bytes for row in rows if row.tier == "hbm")


def grid(decision: Decision) -> Iterator[Decision]:
    """Every set of blocks at every number of a grid."""
    values = [FAMILY.make(n / GRID) for n in range(1, GRID + 1)]
    for value, held in product(values, product((False, True), repeat=BLOCKS)):
        strategies = [
            with_value(s, PARKED, value if is_held else None)
            for s, is_held in zip(decision.strategies, (False, *held, False), strict=True)
        ]
        yield decision._replace(strategies=tuple(strategies))


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_refined_numbers_are_as_good_as_a_grid_and_no_bound_is_above_it(share: float) -> None:
    most, least = reserved("none"), reserved("all")
    asked = problem((least + (most - least) * share) * RULE.margin + 1)
    parts = make_search(asked, SolveOptions(pins=resolve_pins(PINS, asked)))
    found = parts.engine.run()
    best = found.outcomes[0]
    numbers = {
        FAMILY.number_of(s.techniques[PARKED])
        for s in best.decision.strategies[1:-1]
        if s.techniques
    }
    assert any(number is not None and 0 < number < 1 for number in numbers)
    outcomes = [parts.engine.evaluator(one) for one in grid(best.decision)]
    feasible = [o for o in outcomes if o is not None and o.feasible]
    fastest_s = min(o.step_time_s for o in feasible)
    ends = [
        o
        for o in feasible
        if {s.techniques.get(PARKED) for s in o.decision.strategies} <= {None, FAMILY.make(1.0)}
    ]
    assert best.step_time_s <= fastest_s * (1 + 1e-3)
    assert best.step_time_s < min(o.step_time_s for o in ends)
    assert found.lower_bound_s <= min(fastest_s, best.step_time_s)
    assert found.stopped_by == "work"  # the numbers between are bounded, not enumerated


def test_a_pinned_number_is_the_only_one() -> None:
    asked = problem()
    pins = resolve_pins((*PINS, f"{PARKED}=part:0.4667"), asked)
    solution = solve(asked, SolveOptions(pins=pins))
    words = [asked.techniques.values[0].text_of(s) for s in solution.plan.layer_strategies()]
    assert words == ["none", *["part:0.4667"] * BLOCKS, "none"]
    assert solution.search.stopped_by == "proof"
