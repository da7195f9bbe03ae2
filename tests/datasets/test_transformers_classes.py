"""Parameters of a configuration against the class of transformers that it names.

Each class is built on the meta device, which holds no weights. What a class leaves out is said at
``BUILT_HERE_ONLY``; buffers do not count and tied weights count once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from shardwright.datasets.models.load import presets
from shardwright.spec.huggingface.config import MODEL_TYPES, model_from_config
from shardwright.spec.model.layer_parameters import layer_elements
from shardwright.spec.model.model_spec import ModelSpec, MultiTokenLayer

pytestmark = pytest.mark.xdist_group("transformers")

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "fixtures" / "model_configs.json").read_text()
)
CLASSES = {
    "bert": "BertForMaskedLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
}
"""The classes of models that are no language models of one tower."""
CONFIG_TYPES = {"kimi_k2": "deepseek_v3"}
"""Kimi-K2 is published under a name of its own and is a DeepSeek-V3."""
BUILT_HERE_ONLY = MultiTokenLayer
"""The classes of deepseek_v3 and nemotron_h read how many further tokens to predict and build no
layers for it; a plan that trains them holds their parameters."""


def _config(given: Mapping[str, Any]) -> Any:
    keys = {key: value for key, value in given.items() if key != "model_type"}
    kind = given["model_type"]
    return transformers.CONFIG_MAPPING[CONFIG_TYPES.get(kind, kind)](**keys)


@cache
def _built(index: int) -> tuple[int, dict[str, Any]]:
    """Parameters of the class, and the config.json that it writes."""
    given = ROWS[index]["config"]
    config = _config(given)
    name = CLASSES.get(given["model_type"])
    with torch.device("meta"):
        if name is None:
            module = transformers.AutoModelForCausalLM.from_config(config)
        else:
            module = getattr(transformers, name)(config)
    module.tie_weights()
    return (
        sum(p.numel() for p in module.parameters() if p.requires_grad),
        json.loads(config.to_json_string(use_diff=False)),
    )


def _counted(model: ModelSpec) -> int:
    further = [x for x in model.layers() if isinstance(x, BUILT_HERE_ONLY)]
    return model.param_count() - sum(layer_elements(x) for x in further)


PRESETS = {
    "moonlight": "moonlight-16b-a3b",
    "vit-h": "vit-h-14",
    **{name: name for name in (
        "qwen2.5-72b", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-next-80b-a3b", "mixtral-8x7b",
        "mixtral-8x22b", "deepseek-v2", "deepseek-v3", "kimi-k2", "gpt-oss-120b",
        "nemotron-h-8b", "nemotron-4-340b", "bert-large", "t5-large", "llava-1.5-7b",
    )},
}  # fmt: skip
"""Preset → the configuration here that it is."""


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_the_configurations_that_are_counted_here(preset: str) -> None:
    row = next(row for row in ROWS if row["name"] == PRESETS[preset])
    model, _ = model_from_config(row["config"], preset, "config.json")
    assert presets()[preset].model == model


def test_every_family_is_here_in_tiny_and_real_sizes() -> None:
    assert len(ROWS) >= 60
    for real in (True, False):
        rows = [row for row in ROWS if bool(row["source"]) == real]
        found = {row["config"]["model_type"] for row in rows}
        assert found >= set(MODEL_TYPES) - (set() if real else set(CONFIG_TYPES))


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[row["name"] for row in ROWS])
def test_parameters_equal_the_class(index: int) -> None:
    row = ROWS[index]
    model, _ = model_from_config(row["config"], row["name"], "config.json")
    parameters, _ = _built(index)
    assert _counted(model) == parameters


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[row["name"] for row in ROWS])
def test_the_file_that_the_class_writes_is_the_same_model(index: int) -> None:
    row = ROWS[index]
    model, _ = model_from_config(row["config"], row["name"], "config.json")
    _, saved = _built(index)
    assert model_from_config(saved, row["name"], "config.json")[0] == model
