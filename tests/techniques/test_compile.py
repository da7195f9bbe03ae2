"""compile is held to what every technique is."""

from __future__ import annotations

from dataclasses import replace

from generators.plan_cases import Case
from oracles.brute_force import Space
from published.planning import request_of
from toys.technique_spaces import FEW, small_space
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.planner.space.search_space import SearchSpace
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.technique_groups import unsupported_plan_technique
from shardwright.spec.schedules.stage_order import SCHEDULE_KINDS, SPLIT_KINDS, ScheduleKind
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.techniques.compile import Compile
from shardwright.spec.workload.workload import DtypeRecord


class TestCompile(TechniqueSuite):
    known = SHIPPED
    name = "compile"
    refused = (
        Refused(word="default", because="beside cp", strategy=LayerStrategy(cp=2), ranks=2),
        Refused(word="cuda_graph", because="capture", strategy=LayerStrategy(tp=2), ranks=2),
        Refused(word="cuda_graph", because="gathers them anew", ranks=2),
        Refused(word="cuda_graph", because="copies of fp32 masters", dtype=DtypeRecord()),
        Refused(word="default", because="fp8", dtype=DtypeRecord.from_shorthand("fp8")),
    )

    def spaces(self) -> list[Space]:
        return [small_space(SHIPPED, self.name, ("none", "default", "cuda_graph"), *FEW)]


WHOLE = LayerStrategy(techniques={"compile": Compile()})


def piped(kind: ScheduleKind, strategy: LayerStrategy) -> Plan:
    return Case(name="", stages=2, kind=kind, micro_batch=2, strategies=strategy).plan()


def test_a_block_compiled_whole_runs_under_no_schedule_that_splits_the_backward() -> None:
    refused = unsupported_plan_technique(piped("zero_bubble", WHOLE))
    assert refused is not None
    assert refused.startswith("compile default makes all gradients of a block at once")
    assert unsupported_plan_technique(piped("1f1b", WHOLE)) is None
    assert unsupported_plan_technique(piped("zero_bubble", replace(WHOLE, tp=2))) is None


def test_what_is_to_run_leaves_out_what_would_split_a_compiled_block() -> None:
    for word in ("none", "default"):
        space = small_space(SHIPPED, "compile", (word,))
        for executable in (False, True):
            kinds = SearchSpace(request_of(space, executable=executable)).schedule_kinds
            assert set(SCHEDULE_KINDS) <= set(kinds)
            assert (set(SPLIT_KINDS) <= set(kinds)) == (word == "none" or not executable)
