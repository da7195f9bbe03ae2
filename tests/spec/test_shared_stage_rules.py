"""What several device groups in one stage may and may not decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.heterogeneous_plans import Part, asked, mixed_plan, strategy

from shardwright.spec import codec
from shardwright.spec.plan.plan import load_plan

TWO = "1x4xA100-80GB+1x4xH100-80GB"
QUESTION = asked(TWO, "llama-2-7b")
BOTH: list[Part] = [("a100", 0, 4), ("h100", 0, 4)]


def reasons(*parts: list[Part], boundaries: tuple[int, ...] = (0, 34), **fields: object) -> str:
    own = strategy("zero0", **fields) if len(parts) == 1 else strategy(**fields)
    plan = mixed_plan(QUESTION, parts, boundaries, [own] * len(parts), 2)
    return "; ".join(map(str, plan.check()))


def test_shares_and_unequal_widths_are_legal_and_survive_a_round_trip() -> None:
    for parts, boundaries, own in (
        ([BOTH], [0, 34], [strategy("zero1", 8)]),
        ([[("a100", 0, 1)], [("h100", 0, 4)]], [0, 4, 34], [strategy(), strategy("zero1", 4)]),
    ):
        plan = mixed_plan(QUESTION, parts, boundaries, own, 2)
        assert not plan.check()
        again = load_plan(codec.canonical_json(plan.to_document()), "plan")
        assert again.hash == plan.hash


@pytest.mark.parametrize(("parts", "words"), [
    ([("a100", 0, 4, 0.3), ("h100", 0, 4, 0.7)], "whole samples"),
    ([("a100", 0, 4, 0.5), ("h100", 0, 4, 0.25)], "add up to 0.75"),
    ([("a100", 0, 4, 0.125), ("h100", 0, 4, 0.875)], "dp 4 of a100 does not divide its 1 samples"),
    ([("a100", 0, 2), ("a100", 2, 2)], "a100 twice"),
    ([("a100", 0, 4, 0.5)], "batch_share 0.5"),
    ([("a100", 0, 4), ("b200", 0, 4)], "no device group 'b200'"),
])  # fmt: skip
def test_shares_that_cannot_be_are_named(parts: list[Part], words: str) -> None:
    assert words in reasons(parts)


def test_splits_must_fit_every_device_group() -> None:
    words = reasons([("a100", 0, 2, 0.25), ("h100", 0, 4, 0.75)], tp=4)
    assert "tp x cp 4 does not divide the 2 ranks of a100" in words


def test_overrides_may_recompute_and_nothing_else() -> None:
    own = strategy("zero1", 8)
    other = replace(own, tp=2)
    plan = mixed_plan(QUESTION, [BOTH], [0, 34], [own], 1, by_device_group={"h100": other})
    assert "only recompute and techniques may differ" in str(plan.check()[0])
    plan = mixed_plan(QUESTION, [BOTH], [0, 34], [own], 1, by_device_group={"l40s": own})
    assert "one of a100, h100" in str(plan.check()[0])
    alone = mixed_plan(
        QUESTION, [[("h100", 0, 4)]], [0, 34], [strategy()], 1, by_device_group={"h100": own}
    )
    assert "no override" in str(alone.check()[0])


def test_stages_that_share_a_table_need_equally_many_ranks() -> None:
    question = asked(TWO)
    stages = [[("a100", 0, 2)], [("h100", 0, 4)]]
    plan = mixed_plan(question, stages, [0, 4, 14], [strategy()] * 2, 2)
    assert "they need equally many" in str(plan.check()[0])
