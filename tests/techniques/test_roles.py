"""Roles of techniques together: missing ones, rank groups, traces."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from generators.heterogeneous_cases import SLOW, MixedCase, ranks
from generators.plan_cases import Case, Sizes, sharded
from toys.census_choice import KNOWN as CENSUS
from toys.census_price import PRICE
from toys.census_run import RUNS
from toys.census_value import TECHNIQUE, GradientCensus

from shardwright.costmodel.explain.compare import compare_terms
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.symbolic.lowered_pass import HostWork, LoweredPass, chain_passes
from shardwright.costmodel.symbolic.tape import TapeEntry
from shardwright.costmodel.technique import AddedPasses, AddedWork, added_backward
from shardwright.datasets.catalogue.stack import stack
from shardwright.executor.stage.technique_hooks import TechniqueHookList, hides_bytes
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.tracing.segments import Operation, segments
from shardwright.executor.train.job import require_executable
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.technique_groups import (
    stage_technique_groups,
    unsupported_plan_technique,
)
from shardwright.spec.report.trace_marks import STEP, technique_mark
from shardwright.spec.report.work_items import streamed
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import LayerKinds
from shardwright.spec.technique_values import with_value

SIZES = Sizes(blocks=2)
ADD = streamed("add", 1024, 12 * 1024, "fp32")


def census(mode: str = "each", **case: object) -> Plan:
    strategy = with_value(sharded("zero1", 2), TECHNIQUE.name, GradientCensus(mode=mode))  # type: ignore[arg-type]
    shape = {"ranks": 2, "sizes": SIZES, "strategies": strategy, **case}
    return Case(name=mode, techniques=(TECHNIQUE,), **shape).plan()  # type: ignore[arg-type]


def test_a_run_without_the_technique_is_refused() -> None:
    plan = census()
    require_executable(plan, RUNS)
    with pytest.raises(InputError, match="got no run"):
        require_executable(plan, replace(RUNS, runs=SHIPPED.runs))
    unrun = replace(TECHNIQUE, kinds=replace(TECHNIQUE.kinds, executable=()))
    assert "applies to no layers yet" in str(unsupported_plan_technique(plan, (unrun,)))
    with pytest.raises(InputError, match="techniques that the executor runs"):
        require_executable(plan, replace(RUNS, values=(unrun,)))
    assert not hides_bytes(plan, torch.device("cpu"), RUNS)


def test_kinds_are_named_in_reasons() -> None:
    plan = census()
    heads = replace(TECHNIQUE, kinds=LayerKinds.all_of("embedding", "head"))
    broken = [str(violation) for violation in plan.check((heads,))]
    assert broken
    assert all("applies to embeddings and heads, not to the block" in text for text in broken)


def test_groups_are_those_of_the_values() -> None:
    assert stage_technique_groups(census(), 0, (TECHNIQUE,)) == [(TECHNIQUE.name, (2, 1))]
    assert stage_technique_groups(census("held"), 0, (TECHNIQUE,)) == []
    rows = {}
    for mode in ("each", "held"):
        plan = census(mode)
        machine, software = Machine(plan.cluster), stack("shardwright")
        simulation = Simulator.for_plan(plan, machine, software, (PRICE,)).run(plan)
        assert simulation is not None
        rows[mode] = simulation.memory[0].by
    more = rows["each"]["communication"] - rows["held"]["communication"]
    assert more == stack("shardwright").allocator.communicator_bytes > 0


def test_device_groups_of_a_stage_share_what_has_groups() -> None:
    """Ranks that never come to a collective would be waited for."""
    held, each = (
        with_value(LayerStrategy(), TECHNIQUE.name, GradientCensus(mode=mode))
        for mode in ("held", "each")
    )
    for own, legal in ((held, True), (each, False)):
        plan = MixedCase(name="", held=((*ranks(1), *ranks(1, SLOW)),)).plan()
        stage = plan.program.stages[0]
        parts = tuple(
            tuple(
                replace(part, by_device_group={SLOW: own}) if part.layers[1] == 1 else part
                for part in parts
            )
            for parts in stage.virtual_stages
        )
        stages = (replace(stage, virtual_stages=parts), *plan.program.stages[1:])
        changed = replace(plan, programs=(replace(plan.program, stages=stages),))
        broken = [str(v) for v in changed.check((TECHNIQUE,))]
        assert (broken == []) == legal, broken
        assert all("on every device group" in text for text in broken)


def test_a_trace_counts_what_a_technique_does_under_its_name() -> None:
    name = technique_mark("gradient_census")
    found = segments(
        [
            Operation(STEP, 0, 100),
            Operation(name, 10, 60),
            Operation("aten::add", 20, 40),
            Operation("c10d::allreduce_", 40, 60),
            Operation("aten::mul", 60, 80),
        ]
    )
    own = sum(s.end_ns - s.start_ns for s in found if s.term == "gradient_census")
    assert own == 50
    terms = compare_terms({"gradient_census": 2.0}, {"gradient_census": 1.0, "matmul": 3.0}, 4.0)
    assert {term.term for term in terms} == {"gradient_census", "matmul"}


def test_host_work_of_passes_in_a_row_adds_up() -> None:
    plain = LoweredPass((TapeEntry(ADD, False),) * 3, 10, 4)
    waiting = AddedWork(items=(ADD,), scratch_bytes=8, host_s=1e-3).lowered("toy")
    both = chain_passes(plain, waiting)
    assert both.host == HostWork(4, once_s=1e-3)
    assert (both.peak_bytes, both.change_bytes) == (12, 4)
    assert chain_passes(plain, plain).host is None
    one, other = (LoweredPass((), 0, 0, host=HostWork(0, 2, s)) for s in (1e-6, 2e-6))
    with pytest.raises(ValueError, match="generated code"):
        chain_passes(one, other)


def test_bytes_that_are_put_elsewhere_are_back_before_the_backward() -> None:
    own, none = LoweredPass((), 10, -6), LoweredPass((), 0, 0)
    for kept_bytes, peak_bytes in ((5, 10), (-5, 15)):
        found = added_backward(own, AddedPasses(none, none, kept_bytes))
        assert (found.peak_bytes, found.change_bytes) == (peak_bytes, -6 - kept_bytes)


def test_what_no_plan_holds_is_not_started() -> None:
    plain = Case(name="plain", ranks=1, sizes=SIZES).plan()
    assert CENSUS.names == (TECHNIQUE.name,)
    started = TechniqueHookList(plain, None, _Options(), {})  # type: ignore[arg-type]
    assert started.state() == {}


class _Options:
    techniques, kernels = RUNS, "auto"
