"""Overrides of a Megatron Bridge recipe: what they leave is the recipe's, what they say is read."""

from __future__ import annotations

import pytest

from shardwright.api.frameworks.framework_file import framework_file
from shardwright.api.frameworks.import_plan import imported
from shardwright.api.frameworks.shipped import framework_named, framework_of
from shardwright.api.problem.resolve import Inputs
from shardwright.spec.errors import InputError

BRIDGE = framework_named("megatron-bridge", "--from")
TEXT = (
    "model:\n  seq_length: 4096\n  expert_model_parallel_size: 4\n"
    "train:\n  global_batch_size: 64\n  micro_batch_size: 1\n"
)


def read(text: str):
    file = framework_file(text, "overrides.yaml")
    assert framework_of(file, None) is BRIDGE
    return imported(file, BRIDGE, Inputs(cluster="8xH100-80GB", model="qwen3-30b-a3b"), {})


def test_degrees_of_experts_and_the_recipe_s_precision_are_read() -> None:
    found = read(TEXT)
    assert 4 in {strategy.ep for strategy in found.plan.layer_strategies()}
    assert "expert_model_parallel_size" not in found.ignored
    assert found.plan.workload.dtype.param == "bf16"
    assert any(note.path == "mixed_precision" for note in found.assumptions)
    plain = read(TEXT.replace("  expert_model_parallel_size: 4\n", ""))
    assert {strategy.ep for strategy in plain.plan.layer_strategies()} == {1}


def test_a_precision_that_is_said_is_not_assumed() -> None:
    found = read(TEXT + "mixed_precision: fp16_mixed\n")
    assert found.plan.workload.dtype.param == "fp16"
    assert not any(note.path == "mixed_precision" for note in found.assumptions)


@pytest.mark.parametrize("key", ["use_megatron_fsdp", "use_torch_fsdp2"])
def test_other_shardings_are_refused_by_key(key: str) -> None:
    with pytest.raises(InputError, match=f"dist.{key}"):
        read(TEXT + f"dist:\n  {key}: true\n")
    assert read(TEXT + f"dist:\n  {key}: false\n").plan == read(TEXT).plan
