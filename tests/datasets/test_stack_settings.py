"""Settings beside a stack's name: what they change, older names, one line for a mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.datasets.catalogue.stack import (
    canonical_stack,
    overlap_settings,
    stack,
    stack_sources,
    stacks,
)
from shardwright.datasets.catalogue.stack_settings import (
    all_settings,
    help_text,
    settings_of,
    stack_aliases,
    stack_names,
)
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.errors import InputError

MEGATRON = stack("megatron")


@pytest.mark.parametrize("base", list(stacks()))
def test_every_value_of_every_setting_reads_back_and_has_sources(base: str) -> None:
    for key, values in settings_of(base).items():
        made = [stack(f"{base}:{key}={value}") for value in values]
        assert len({m.name for m in made}) > 1
        assert base in {m.name for m in made}  # a stack has one of the values already
        for software in made:
            assert stack(software.name) == software
            assert all(len(source) > 10 for source in stack_sources(software.name).values())
            assert replace(software, name=base) != stack(base) or software.name == base


def test_settings_change_their_figures_only() -> None:
    loss = stack("megatron:loss=fused")
    assert loss.fusion.cross_entropy
    fusion = replace(loss.fusion, cross_entropy=False)
    assert replace(loss, fusion=fusion, name="megatron") == MEGATRON
    assert stack("megatron:attention_kernels=2").flash_generation == 2
    assert stack("deepspeed:dispatcher=deepep").expert_dispatch == "tokens"
    assert stack("megatron:expert_overlap=on").overlaps.ep
    assert stack("shardwright:loss=plain", on_cores=True).fusion == (
        stack("shardwright", on_cores=True).fusion
    )


def test_the_name_holds_what_differs_in_one_order() -> None:
    typed = "megatron: expert_overlap=on, dispatcher=deepep,loss=plain"
    assert stack(typed).name == "megatron:dispatcher=deepep,expert_overlap=on"
    assert stack("megatron:dispatcher=alltoall,cuda_graphs=off") is MEGATRON
    fused = stack("torchtitan:compile=off,loss=fused")  # fused is no more than usual if compiled
    assert fused.name == "torchtitan:compile=off,loss=fused"
    assert fused.fusion.cross_entropy


def test_older_names_have_the_figures_that_they_had() -> None:
    graphs, bridge = stack("megatron-cuda-graphs"), stack("megatron-bridge")
    assert replace(bridge, name="megatron", expert_dispatch="rows") == MEGATRON
    assert (graphs.launch_s, graphs.pass_s, graphs.expert_dispatch) == (0.0, 100e-6, "tokens")
    eager, compiled = stack("torchtitan-eager"), stack("torchtitan")
    off = ("norm", "rope", "softmax", "bias_activation", "gated_activation", "bias_residual")
    names = (*off, "cross_entropy", "router", "permute")
    fusion = replace(compiled.fusion, **dict.fromkeys(names, False))
    assert eager == replace(compiled, name=eager.name, compile=False, fusion=fusion)
    assert eager.fusion.weighted_activation
    assert {canonical_stack(name) for name in stack_aliases()} == set(stack_aliases().values())
    assert canonical_stack("a stack of tomorrow") == "a stack of tomorrow"
    assert stack("megatron-bridge:dispatcher=alltoall") is MEGATRON


@pytest.mark.parametrize(
    ("text", "given", "nearest"),
    [
        ("megatron:dispatcher=deepp", "dispatcher=deepp", "dispatcher=deepep"),
        ("megatron:deepep", "deepep", "dispatcher=deepep"),
        ("megatron:dispatch=hybridep", "dispatch=hybridep", "dispatcher=hybridep"),
        ("megatron:cuda_graphs=true", "cuda_graphs=true", "cuda_graphs=on"),
        ("megatron:attention_kernels=4", "attention_kernels=4", "attention_kernels=3"),
        ("torchtitan:cuda_graphs=on", "cuda_graphs=on", "--compile cuda_graph"),
        ("megatron:compile=on", "compile=on", "--compile default"),
        ("megatron:", "megatron:", "megatron"),
        ("megatorn:loss=fused", "megatorn", "megatron"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest(text: str, given: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        stack(text)
    assert caught.value.field == "--stack"
    assert caught.value.given == given
    assert str(caught.value.nearest).split(", ")[0] == nearest


def test_two_values_of_a_setting_are_refused() -> None:
    with pytest.raises(InputError, match="loss=plain and loss=fused; allowed: one loss"):
        stack("megatron:loss=plain,loss=fused")


def test_help_lists_every_stack_and_setting() -> None:
    text = help_text()
    assert all(name in text for name in stack_names())
    assert len(stack_names()) >= 8
    for key, table in all_settings().items():
        assert f"{key}={'|'.join(table['values'])}" in text


def test_overlap_settings_are_those_that_were_typed() -> None:
    assert overlap_settings("megatron:expert_overlap=off,loss=fused") == {
        "ep": ("expert_overlap=off", False)
    }
    assert isinstance(stack("megatron:loss=fused"), StackSpec)
