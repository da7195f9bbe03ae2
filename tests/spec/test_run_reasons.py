"""What the executor is asked to run and cannot, said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.datasets.catalogue.models import presets
from shardwright.spec.model import Attention, BlockLayer, ModelSpec, Tower
from shardwright.spec.runnable import model_run_reason


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
    assert model_run_reason(presets()[name].model, 256) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mixtral-8x7b", "moe feed-forward"),
        ("moonlight", "latent attention"),
        ("nemotron-h-8b", "state_space attention"),
        ("nemotron-4-340b", "activation relu2"),
        ("llava-1.5-7b", "towers other than an encoder and its decoder"),
    ],
)
def test_the_rest_is_planned_and_not_run(name: str, words: str) -> None:
    reason = model_run_reason(presets()[name].model, 256)
    assert reason is not None
    assert reason.startswith(words) or words in reason
    assert "planned but not run yet" in reason


def test_a_window_runs_where_it_hides_nothing() -> None:
    assert model_run_reason(_windowed(256), 256) is None
    reason = model_run_reason(_windowed(255), 256)
    assert reason == "a sliding window of 255 in 256 tokens is planned but not run yet"
