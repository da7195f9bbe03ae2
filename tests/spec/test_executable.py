"""What the executor is asked to run and cannot, said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.family_cases import FamilyCase, bert, t5, vit
from generators.plan_cases import Case
from ranks.expert_runs import FOUR, LATENT, MIXTRAL, ExpertSizes

from shardwright.datasets.models.load import presets
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.model_spec import (
    Attention,
    BlockLayer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    Mlp,
    ModelSpec,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
    Tower,
)
from shardwright.spec.rules.executable import (
    unsupported_combination,
    unsupported_experts,
    unsupported_layer,
    unsupported_model,
    unsupported_strategy,
    unsupported_together,
    unsupported_window,
)
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import Lora, adapter_specs

ATTENTION = Attention(heads=4, kv_heads=2, head_dim=16)
UNTURNED = LatentAttention(heads=4, kv_rank=8, nope_dim=8, rope_dim=4, value_dim=8)
STATES = StateSpace(heads=8, head_dim=16, state_dim=24)


def _windowed(window: int) -> ModelSpec:
    model = presets()["shardwright-demo"].model
    runs = []
    for run in model.towers[0].layers:
        layer = run.layer
        if isinstance(layer, BlockLayer) and isinstance(layer.attention, Attention):
            layer = replace(layer, attention=replace(layer.attention, window=window))
        runs.append(replace(run, layer=layer))
    return replace(model, towers=(Tower(name="decoder", layers=tuple(runs)),))


@pytest.mark.parametrize(
    "name",
    ["shardwright-demo", "gpt2", "llama-3-8b", "qwen3-8b", "bert-large", "vit-h", "t5-large"],
)
def test_dense_decoders_encoders_and_both_run(name: str) -> None:
    assert unsupported_model(presets()[name].model, 256) is None


@pytest.mark.parametrize(
    "name", ["mixtral-8x7b", "qwen3-30b-a3b", "moonlight", "deepseek-v2", "kimi-k2"]
)
def test_experts_and_latent_attention_run(name: str) -> None:
    assert unsupported_model(presets()[name].model, 256) is None


def test_norms_of_all_heads_run_where_heads_are_whole() -> None:
    model = presets()["qwen3-8b"].model
    runs = []
    for run in model.towers[0].layers:
        layer = run.layer
        if isinstance(layer, BlockLayer) and isinstance(layer.attention, Attention):
            layer = replace(layer, attention=replace(layer.attention, qk_norm_joint=True))
        runs.append(replace(run, layer=layer))
    model = replace(model, towers=(Tower(name="decoder", layers=tuple(runs)),))
    workload = Case(name="").plan().workload
    ulysses = LayerStrategy(tp=2, sequence_parallel="ulysses")
    assert unsupported_model(model, 256) is None
    assert unsupported_strategy(model, ulysses, workload) is None
    reason = unsupported_strategy(model, LayerStrategy(tp=2), workload)
    assert reason is not None
    assert reason.startswith("tp 2 over norms of all heads together")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"activation": "clamped_swiglu"}, "activation clamped_swiglu"),
        ({"weigh": "inputs"}, "experts whose inputs are weighed"),
    ],
)
def test_other_mixtures_are_planned_and_not_run(fields: dict[str, object], words: str) -> None:
    reason = unsupported_experts(Moe(experts=8, topk=2, ffn=64, **fields))  # type: ignore[arg-type]
    assert reason is not None
    assert reason.startswith(words)
    assert reason.endswith("planned but not run yet")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-oss-120b", "activation clamped_swiglu"),
        ("qwen3-next-80b-a3b", "delta_rule attention"),
        ("nemotron-h-8b", "state_space attention"),
        ("nemotron-4-340b", "activation relu2"),
        ("llava-1.5-7b", "towers other than an encoder and its decoder"),
    ],
)
def test_the_rest_is_planned_and_not_run(name: str, words: str) -> None:
    reason = unsupported_model(presets()[name].model, 256)
    assert reason is not None
    assert reason.startswith(words) or words in reason
    assert "planned but not run yet" in reason


@pytest.mark.parametrize(
    ("mixer", "words"),
    [
        (ShortConvolution(channels=64), "short_convolution attention"),
        (LightningAttention(heads=4, head_dim=16), "lightning attention"),
        (KimiDeltaAttention(heads=4, head_dim=16), "kimi_delta attention"),
        (replace(UNTURNED, rotary=False), "latent attention without positions"),
        (ParallelMixers(attention=ATTENTION, state_space=STATES), "parallel attention"),
        (replace(ATTENTION, qk_norm=True, qk_norm_weight=False), "norms of heads without weights"),
        (replace(ATTENTION, value_norm=True), "norms of values"),
        (replace(ATTENTION, keys_as_values=True), "keys that are values too"),
        (replace(ATTENTION, chunk=64), "attention in chunks of 64 of 256 tokens"),
    ],
)
def test_other_mixers_are_planned_and_not_run(mixer: Mixer, words: str) -> None:
    block = BlockLayer(hidden=64, attention=mixer, mlp=Mlp(ffn=128))
    reason = unsupported_layer(block) or unsupported_window(block, 256)
    assert reason is not None
    assert reason.startswith(words)
    assert reason.endswith("planned but not run yet")


def test_norms_of_the_stream_itself_are_planned_and_not_run() -> None:
    block = BlockLayer(hidden=64, attention=ATTENTION, mlp=Mlp(ffn=128), norm_placement="stream")
    reason = "norms of the residual stream itself are planned but not run yet"
    assert unsupported_layer(block) == reason


def test_chunks_run_where_they_hide_nothing() -> None:
    block = BlockLayer(hidden=64, attention=replace(ATTENTION, chunk=256), mlp=Mlp(ffn=128))
    assert unsupported_layer(block) is None
    assert unsupported_window(block, 256) is None


def test_a_window_runs_where_it_hides_nothing() -> None:
    assert unsupported_model(_windowed(256), 256) is None
    reason = unsupported_model(_windowed(255), 256)
    assert reason == "a sliding window of 255 in 256 tokens is planned but not run yet"


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (t5(), {"cp": 2}, "cp 2 in a model of two towers or of learned relative positions"),
        (t5(), {"tp": 2, "sequence_parallel": "ulysses"}, "Ulysses in a model of two towers"),
        (bert(), {"cp": 2}, None),
        (vit(), {"tp": 2, "sequence_parallel": "ulysses"}, None),
    ],
)
def test_splits_of_the_sequence_that_one_tower_runs(
    model: ModelSpec, given: dict[str, object], words: str | None
) -> None:
    plan = FamilyCase(name="", model=model, seq_len=64).plan()
    assert unsupported_combination(plan) is None
    own = LayerStrategy(**given)  # type: ignore[arg-type]
    stages = tuple(
        replace(
            stage,
            virtual_stages=tuple(
                tuple(replace(part, strategy=own) for part in parts)
                for parts in stage.virtual_stages
            ),
        )
        for stage in plan.program.stages
    )
    split = replace(plan, programs=(replace(plan.program, stages=stages),))
    reason = unsupported_combination(split)
    if words is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.startswith(words)
        assert "planned but not run yet" in reason


def test_adapters_beside_one_tower_alone() -> None:
    lora = Lora(rank=4, targets=("query",))
    assert unsupported_combination(FamilyCase(name="", model=bert(), adapters=lora).plan()) is None
    reason = unsupported_combination(FamilyCase(name="", model=t5(), adapters=lora).plan())
    assert reason is not None
    assert reason.startswith("adapters in a model of two towers")


ADAPTED = ExpertSizes(moe=FOUR, latent=LATENT)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(name="", sizes=ADAPTED, adapters=Lora(targets=("kv_down", "output"))), None),
        (Case(name="", sizes=ADAPTED, stages=2, kind="zero_bubble", micro_batch=2), None),
        (Case(name="", adapters=Lora(), stages=2, kind="zero_bubble", micro_batch=2), None),
        (
            Case(name="", sizes=MIXTRAL, adapters=Lora(targets=("query", "experts_down"))),
            "lora beside experts_down, the matrices of all experts, is not built",
        ),
    ],
)
def test_what_runs_beside_what(case: Case, words: str | None) -> None:
    reason = unsupported_together(case.plan())
    assert (reason is None) == (words is None)
    assert (reason or "").startswith(words or "")


def test_adapters_of_whole_projections_have_parts_of_gradients_as_these_do() -> None:
    block = next(x for x in ADAPTED.model().layers() if isinstance(x, BlockLayer))
    specs = {spec.name: spec for spec in layer_parameters(block)}
    lora = Lora(targets=("kv_down", "kv_up"))
    whole, split = (adapter_specs(specs[f"{n}.weight"], lora) for n in lora.targets)
    assert [spec.partial_gradient for spec in whole] == ["sequence_parallel"] * 2
    assert [spec.partial_gradient for spec in split] == ["never"] * 2
    assert [spec.split_dim for spec in split] == [None, 0]
