"""Parameters of a configuration against the class of transformers that it names.

Each class is built on the meta device, which holds no weights. What a class leaves out is said at
``hf_classes.BUILT_HERE_ONLY``; buffers do not count and tied weights count once.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hf.hf_classes import CONFIG_TYPES, ROWS, class_parameters, configuration, counted

from shardwright.datasets.models.load import presets
from shardwright.spec.huggingface.config import MODEL_TYPES, model_from_config

pytestmark = pytest.mark.xdist_group("transformers")


@cache
def _built(index: int) -> tuple[int, dict[str, Any]]:
    """Parameters of the class, and the config.json that it writes."""
    given = ROWS[index]["config"]
    config = configuration(given)
    parameters = class_parameters(config, given["model_type"])
    return parameters, json.loads(config.to_json_string(use_diff=False))


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
    assert counted(model) == parameters


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[row["name"] for row in ROWS])
def test_the_file_that_the_class_writes_is_the_same_model(index: int) -> None:
    row = ROWS[index]
    model, _ = model_from_config(row["config"], row["name"], "config.json")
    _, saved = _built(index)
    assert model_from_config(saved, row["name"], "config.json")[0] == model
