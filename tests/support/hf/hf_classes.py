"""Parameters of the classes of the transformers library, built on the meta device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardwright.spec.model.layer_parameters import layer_elements
from shardwright.spec.model.model_spec import ModelSpec, MultiTokenLayer

CONFIGS = Path(__file__).parents[2] / "datasets" / "fixtures" / "model_configs.json"
ROWS: list[dict[str, Any]] = json.loads(CONFIGS.read_text())
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


def configuration(given: Mapping[str, Any]) -> Any:
    """The library's configuration object of a document."""
    import transformers

    keys = {key: value for key, value in given.items() if key != "model_type"}
    kind = given["model_type"]
    return transformers.CONFIG_MAPPING[CONFIG_TYPES.get(kind, kind)](**keys)


def class_parameters(config: Any, model_type: str) -> int:
    """Trained parameters of the class of a configuration, tied weights once."""
    import torch
    import transformers

    name = CLASSES.get(model_type)
    with torch.device("meta"):
        if name is None:
            module = transformers.AutoModelForCausalLM.from_config(config)
        else:
            module = getattr(transformers, name)(config)
    module.tie_weights()
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def counted(model: ModelSpec) -> int:
    """Our parameters, without the layers that the classes do not build."""
    further = [x for x in model.layers() if isinstance(x, BUILT_HERE_ONLY)]
    return model.param_count() - sum(layer_elements(x) for x in further)


def default_document(name: str) -> dict[str, Any]:
    """The document of a family's default configuration; its type alone where it makes none."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    try:
        config = transformers.CONFIG_MAPPING[name]()
    except StrictDataclassError:
        return {"model_type": name}
    document: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return document
