"""Work beside the computation: none in plain plans, hidden the better the longer a sequence is."""

from __future__ import annotations

import pytest

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.explain.beside import BesideWork, beside_work
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.techniques.activation_swap import NAME


def found(tokens: int, share: float | None) -> list[BesideWork]:
    problem = resolve(
        Inputs(
            model="llama-2-7b",
            cluster="1x8xA800-80GB",
            global_batch=1,
            seq_len=tokens,
            host_gib=128,
        )
    )
    words = {} if share is None else {NAME: f"swap:{share}"}
    flags = UniformStrategy(tp=8, sp="megatron", techniques=words)
    plan, _ = uniform_plan(problem, flags)
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), problem.stack)
    simulation = simulator.run(plan)
    assert simulation is not None
    rows = beside_work(simulation, simulator.pricer, plan.program.schedule.microbatches)
    for row in rows:
        assert row.in_line_s + row.shown_s == pytest.approx(breakdown(simulation)[row.technique])
    return rows


def test_a_plain_plan_has_none() -> None:
    assert found(4096, None) == []


def test_copies_hide_where_a_block_takes_longer_than_they_do() -> None:
    """What is left of long sequences: copies slow the computation beside them, and both ends."""
    (short,), (long,) = found(2**13, 1.0), found(2**18, 1.0)
    assert (short.technique, *short.lanes) == (NAME, "to_device", "to_host")
    assert short.lanes["to_host"] == pytest.approx(short.lanes["to_device"])
    slowed = stack("shardwright").overlap_slowdown - 1
    assert short.hidden < 0.7
    assert long.hidden == pytest.approx(1 - slowed - 2 / 64, abs=0.03)


def test_what_is_made_again_is_in_line() -> None:
    (all_copied,), (some,), (least,) = (found(2**13, share) for share in (1.0, 0.5, 0.0))
    assert all_copied.in_line_s == 0 < some.in_line_s < least.in_line_s
    assert all_copied.lanes["to_host"] > some.lanes["to_host"] > least.lanes["to_host"]
