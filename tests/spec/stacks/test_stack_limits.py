"""What stacks can run, against what their users know."""

from __future__ import annotations

from dataclasses import replace

import pytest

import shardwright as sw
from shardwright.datasets.catalogue.stack import stack, stacks
from shardwright.datasets.models.load import presets
from shardwright.spec.model.experts import experts_of
from shardwright.spec.plan.uniform_strategy import strategy_count
from shardwright.spec.rules.stack_limits import (
    limits_violation,
    shard_kind,
    stack_plan_violations,
)
from shardwright.spec.strategy import LayerStrategy, Sharding

ZERO3 = Sharding(parameters=8, gradients=8, optimizer=8)


def sharding(level: str) -> LayerStrategy:
    return LayerStrategy(shard=Sharding.from_text(level, 8))


@pytest.mark.parametrize(
    ("name", "level", "stages", "reason"),
    [
        ("deepspeed", "zero3", 1, None),
        ("deepspeed", "zero1", 4, None),
        ("deepspeed", "zero2", 4, "the stack deepspeed has no zero2 beside a pipeline"),
        ("deepspeed", "zero3", 4, "the stack deepspeed has no zero3 beside a pipeline"),
        ("torchtitan", "zero1", 1, "the stack torchtitan has no zero1"),
        ("torchtitan", "hsdp:4", 1, None),
        ("megatron", "zero2", 1, "the stack megatron has no zero2"),
        ("megatron", "1/1/4", 2, None),
        ("transformers", "zero3", 2, "the stack transformers has no pp"),
        ("shardwright", "2/4/8", 4, None),
    ],
)
def test_sharding_levels_of_stacks(name: str, level: str, stages: int, reason: str | None) -> None:
    assert limits_violation(sharding(level), 8, stages, stack(name)) == reason


def test_tensor_parallelism_of_stacks() -> None:
    whole = LayerStrategy(tp=8)
    split = replace(whole, sequence_parallel="megatron")
    assert limits_violation(split, 8, 1, stack("torchtitan")) is None
    reason = "the stack torchtitan has sequence parallelism megatron beside tp"
    assert limits_violation(whole, 8, 1, stack("torchtitan")) == reason
    assert (
        limits_violation(whole, 8, 1, stack("transformers")) == "the stack transformers has no tp"
    )
    beside = replace(split, tp=2, shard=Sharding(parameters=4, gradients=4, optimizer=4))
    assert limits_violation(
        replace(beside, sequence_parallel="none"), 8, 1, stack("deepspeed")
    ) == ("the stack deepspeed has no zero3 beside tp")
    assert (
        limits_violation(replace(beside, tp=8, shard=Sharding()), 8, 1, stack("shardwright"))
        is None
    )


def test_a_sharding_over_one_rank_is_no_level() -> None:
    assert (
        limits_violation(LayerStrategy(tp=8, sequence_parallel="megatron"), 8, 4, stack("megatron"))
        is None
    )


@pytest.mark.parametrize(
    ("shard", "kind"),
    [
        (Sharding(), "zero0"),
        (ZERO3, "zero3"),
        (replace(ZERO3, secondary_parameters=2), "hpz"),
        (Sharding(parameters=2, gradients=2, optimizer=2), "hsdp"),
        (Sharding(optimizer=4), "nested"),
    ],
)
def test_kinds_of_sharding(shard: Sharding, kind: str) -> None:
    assert shard_kind(shard, 8) == kind


def test_every_limit_of_every_stack_has_a_source() -> None:
    from shardwright.datasets.catalogue.stack import stack_sources

    for name in stacks():
        fields = {key for key in stack_sources(name) if key.startswith("limits.")}
        assert len(fields) == 9, name


def test_an_embedding_takes_the_blocks_strategy() -> None:
    layers = presets()["llama-3-8b"].model.layers()
    block = LayerStrategy(tp=2, sequence_parallel="megatron", recompute="full")
    end = replace(block, recompute="none")
    assert strategy_count(layers, [end, *[block] * 32, end]) == 1
    other = replace(end, tp=4)
    assert strategy_count(layers, [other, *[block] * 32, end]) == 2


def test_dense_blocks_beside_experts_take_one_strategy() -> None:
    model = presets()["deepseek-v3"].model
    chosen = [LayerStrategy(ep=8 if experts_of(layer) else 1) for layer in model.layers()]
    assert len(set(chosen)) == 2
    assert strategy_count(model.layers(), chosen) == 1


def test_a_plan_of_several_strategies_is_none_of_a_stack() -> None:
    typed = {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000}
    asked = {"global_batch": 8, "seq_len": 1024}
    free = sw.plan(typed, "2xA100-80GB", pins=["tp@0=2", "tp@1-8=1"], prefer="best", **asked)
    broken = stack_plan_violations(free.plan, stack("megatron"))
    assert "the stack megatron has one strategy for all layers" in broken
    held = sw.plan(typed, "2xA100-80GB", stack="megatron", **asked)
    assert stack_plan_violations(held.plan, stack("megatron")) == []
