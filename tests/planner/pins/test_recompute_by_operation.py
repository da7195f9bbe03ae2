"""Recomputation by operation in a search: where the stack lists it, and where it is pinned."""

from __future__ import annotations

from typing import Any

import pytest

import shardwright as sw
from shardwright.spec.errors import InputError

MODEL = {"layers": 2, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 8192}
WORK: dict[str, Any] = {"global_batch": 2, "seq_len": 2048, "top": 0}


def recomputes(report: Any) -> set[str]:
    return {strategy.recompute for strategy in report.plan.layer_strategies()}


def test_a_stack_that_lists_it_searches_it() -> None:
    listed = sw.plan(MODEL, "1xH100", stack="torchtitan", **WORK).report.search
    assert listed is not None
    assert "selective-ops" in listed.space["recompute"]
    plain = sw.plan(MODEL, "1xH100", **WORK).report.search
    assert plain is not None
    assert plain.space["recompute"] == ["full", "none", "selective"]
    assert any(row["what"] == "recompute by operation" for row in plain.left_out)


@pytest.mark.parametrize(
    ("pin", "found"),
    [
        ("recompute=selective-ops", {"none", "selective-ops"}),
        ("recompute=ops:save=w2,attention", {"none", "ops:save=input,attention,down"}),
    ],
)
def test_a_pin_is_planned_on_other_stacks(pin: str, found: set[str]) -> None:
    report = sw.plan(MODEL, "1xH100", pins=[pin], **WORK).report
    assert recomputes(report) == found
    assert report.search is not None
    assert report.search.gap == pytest.approx(0, abs=0.01)


def test_less_memory_makes_a_stack_choose_it() -> None:
    work = WORK | {"global_batch": 16, "pins": ["micro_batch=16"], "stack": "torchtitan"}
    loose = sw.plan(MODEL, "1xH100", **work).report
    assert recomputes(loose) == {"none"}
    less = 0.95 * loose.prediction.memory[0].reserved_bytes / 2**30
    tight = sw.plan(MODEL, "1xH100", memory_gib=less, **work).report
    assert "selective-ops" in recomputes(tight)


def test_a_stack_without_it_refuses_the_pin() -> None:
    with pytest.raises(InputError, match="with the stack megatron"):
        sw.plan(MODEL, "1xH100", stack="megatron", pins=["recompute=selective-ops"], **WORK)
