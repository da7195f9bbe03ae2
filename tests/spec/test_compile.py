"""The technique compile in a plan: absent when it is off, refused where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from generators.plan_cases import Case, sharded
from kernel_doubles.compiled_layers import text_of, with_mode

from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan, load_plan
from shardwright.spec.rules.plan_rules import stack_violation
from shardwright.spec.strategy import LayerStrategy, typed_values
from shardwright.spec.technique_values import technique_violation
from shardwright.spec.techniques import TECHNIQUES
from shardwright.spec.techniques.compile import Compile, mode_of
from shardwright.spec.workload.workload import DtypeRecord

PLAIN = LayerStrategy()
FP32 = DtypeRecord.from_shorthand("fp32")


def plain(strategy: LayerStrategy = PLAIN, **case: Any) -> Plan:
    shape = {"ranks": 1, "micro_batch": 4, **case}
    return Case(name="plain", strategies=strategy, **shape).plan()


def compiled(mode: str, strategy: LayerStrategy = PLAIN, **case: Any) -> Plan:
    """The plan with every block compiled so, legal or not."""
    return changed(plain(strategy, **case), lambda each: with_mode(each, mode))


def changed(plan: Plan, change: Callable[[LayerStrategy], LayerStrategy]) -> Plan:
    """The plan with the strategies of its blocks changed."""
    program, last = plan.program, len(plan.model.layers()) - 1
    stages = tuple(
        replace(
            stage,
            virtual_stages=tuple(
                tuple(
                    part
                    if part.layers[1] in (0, last)
                    else replace(part, strategy=change(part.strategy))
                    for part in parts
                )
                for parts in stage.virtual_stages
            ),
        )
        for stage in program.stages
    )
    return replace(plan, programs=(replace(program, stages=stages),))


def test_off_is_the_same_plan_as_before_there_was_the_technique() -> None:
    off = compiled("none")
    assert off.hash == plain().hash
    assert "techniques" not in canonical_json(off)
    assert with_mode(with_mode(PLAIN, "cuda_graph"), "none") == PLAIN


@pytest.mark.parametrize("mode", ["default", "cuda_graph"])
def test_a_document_says_how_blocks_are_compiled(mode: str) -> None:
    plan = compiled(mode)
    text = canonical_json(plan.to_document())
    again = load_plan(text, "plan")
    assert again == plan
    assert again.hash == plan.hash != compiled("none").hash
    assert {text_of(s) for s in again.layer_strategies()} == {"none", mode}


def test_values_are_typed_and_checked() -> None:
    found = typed_values({"compile": {"mode": "cuda_graph"}, "later": 1}, TECHNIQUES)
    assert found == {"compile": Compile(mode="cuda_graph"), "later": 1}
    for wrong in ({"mode": "fast"}, {"kind": "default"}, "default"):
        with pytest.raises(InputError, match=r"techniques\.compile"):
            typed_values({"compile": wrong}, TECHNIQUES)


def test_a_technique_that_is_not_known_or_stands_elsewhere_is_named() -> None:
    other = changed(plain(), lambda each: replace(each, techniques={"fold": 1}))
    for path, broken in (
        ("techniques", replace(plain(), techniques={"compile": Compile()})),
        ("stages.0", other),
    ):
        found = [v for v in broken.check() if "not built yet" in v.message]
        assert found
        assert all(path in v.path for v in found)


@pytest.mark.parametrize(
    ("reason", "mode", "strategy", "case"),
    [
        ("capture collectives", "cuda_graph", LayerStrategy(tp=2), {"ranks": 2}),
        ("recompute full", "cuda_graph", replace(PLAIN, recompute="full"), {}),
        ("dp 2 gathers them anew", "cuda_graph", sharded("zero1", 2), {"ranks": 2}),
        ("bf16 copies of fp32 masters", "cuda_graph", PLAIN, {"dtype": "bf16"}),
        ("beside cp", "default", LayerStrategy(cp=2), {"ranks": 2}),
    ],
)
def test_rules(reason: str, mode: str, strategy: LayerStrategy, case: dict[str, Any]) -> None:
    assert plain(strategy, **case).check() == []
    found = [v.message for v in compiled(mode, strategy, **case).check()]
    assert found
    assert all(reason in message for message in found)


def test_only_dense_blocks_are_compiled() -> None:
    embedding, block, *_, head = compiled("none").model.layers()
    on = with_mode(PLAIN, "default")
    for layer in (embedding, head):
        assert "applies to blocks" in str(technique_violation(layer, on, 1, FP32))
    assert technique_violation(block, on, 1, FP32) is None
    parallel = replace(block, parallel=True)  # type: ignore[call-arg]
    assert "dense decoder blocks" in str(technique_violation(parallel, on, 1, FP32))
    narrow = DtypeRecord.from_shorthand("fp8")
    assert "fp8" in str(technique_violation(block, on, 1, narrow))
    odd = replace(PLAIN, techniques={"compile": {"mode": "default"}})
    assert mode_of(odd) is None
    assert "no Compile value" in str(technique_violation(block, odd, 1, FP32))


def test_a_stack_that_compiles_anyway_says_so() -> None:
    on = with_mode(PLAIN, "default")
    assert stack_violation(on, stack("shardwright")) is None
    assert "compiles every layer already" in str(stack_violation(on, stack("torchtitan")))
