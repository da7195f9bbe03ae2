"""What no reader of configurations takes: keys that are listed or refused, and whole families."""

from __future__ import annotations

from typing import Any

import pytest
from hf.hf_classes import default_document

from shardwright.spec.errors import InputError, NotBuiltError, ShardwrightError
from shardwright.spec.huggingface.config import MODEL_TYPES, config_document, model_from_config
from shardwright.spec.huggingface.registry import FAMILIES
from shardwright.spec.huggingface.unread.keys import SILENT, STRUCTURAL, UNBUILT
from shardwright.spec.huggingface.unread.types import REFUSED, TRANSFORMERS_TYPES

pytestmark = pytest.mark.xdist_group("transformers")

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
LLAMA = {"model_type": "llama", **SIZES}
EXPERTS = {"model_type": "qwen3_moe", **SIZES}


def _notes(document: dict[str, Any]) -> dict[str, Any]:
    return {note.path: note.value for note in model_from_config(document, "m", "c")[1]}


def test_a_key_that_nothing_reads_is_said() -> None:
    notes = _notes({**LLAMA, "wide_mouth": 3, "a_frog": "green", "nothing": None})
    assert notes["model.config_keys"] == "a_frog, wide_mouth"
    assert "model.config_keys" not in _notes(LLAMA)


@pytest.mark.parametrize(
    "key",
    [
        *("torch_dtype", "bos_token_id", "use_cache", "temperature", "_name_or_path", "auto_map"),
        *("pooler_fc_size", "directionality", "cache_implementation", "query_pre_attn_scalar"),
        *("pretraining_tp", "aux_loss_alpha", "scoring_func", "original_max_position_embeddings"),
    ],
)
def test_a_key_without_a_bearing_on_the_model_is_silent(key: str) -> None:
    assert "model.config_keys" not in _notes({**LLAMA, key: 3})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({**EXPERTS, "n_shared_experts": 1}, "n_shared_experts 1, which qwen3_moe does not read"),
        ({**EXPERTS, "first_k_dense_replace": 3}, "such as deepseek_v3"),
        ({**LLAMA, "sliding_window": 512}, "such as mistral"),
        ({**LLAMA, "kv_lora_rank": 512}, "kv_lora_rank 512"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 2}, "such as gemma3_text"),
        ({**LLAMA, "audio_config": {"width": 3}}, "no family here has it"),
        ({**LLAMA, "moe_topk": 2}, "moe_topk 2"),
    ],
)
def test_a_key_that_would_change_the_model_is_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(NotBuiltError) as caught:
        model_from_config(document, "m", "config.json")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        {"n_shared_experts": 0},
        {"num_experts": 1, "moe_topk": 1},
        {"sliding_window": None},
        {"layer_types": ["full_attention"] * 2},
    ],
)
def test_a_key_that_says_what_is_usual_is_silent(extra: dict[str, Any]) -> None:
    assert model_from_config({**LLAMA, **extra}, "m", "c") == model_from_config(LLAMA, "m", "c")


def test_keys_of_an_inner_configuration_are_named_with_their_place() -> None:
    vision = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "frog": 1}
    notes = _notes({"model_type": "llava", "vision_config": vision, "text_config": LLAMA})
    assert notes["model.config_keys"] == "vision_config.frog"


def test_every_structural_key_names_a_family_that_reads_it() -> None:
    known = {family.model_type for family in FAMILIES}
    assert set(STRUCTURAL) <= known
    listed = [key for keys in STRUCTURAL.values() for key in keys]
    assert not SILENT & {*listed, *UNBUILT}


def test_refused_types_are_not_read() -> None:
    assert not set(REFUSED) & set(MODEL_TYPES)
    assert {nearest.partition(",")[0] for _, nearest in REFUSED.values()} <= set(MODEL_TYPES)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model_type": "bloom"}, "(ALiBi positions) is not built yet; nearest: opt"),
        ({"model_type": "jetmoe", "num_local_experts": 8}, "(8 experts)"),
        ({"model_type": "mine", **SIZES, "kv_lora_rank": 8}, "(latent attention)"),
        ({"model_type": "zamba", "layer_types": ["hybrid", "mamba"]}, "layers of hybrid, mamba"),
        (
            {"model_type": "fuyu", "text_config": LLAMA, "vision_config": {"model_type": "v"}},
            "(images by a tower of v) is not built yet; nearest: llama, its text_config",
        ),
        ({"model_type": "qwen3", **SIZES, "is_encoder_decoder": True}, "cross-attention"),
    ],
)
def test_a_type_that_is_not_read_is_refused_with_what_it_has(
    document: dict[str, Any], words: str
) -> None:
    with pytest.raises(NotBuiltError) as caught:
        model_from_config(document, "m", "config.json")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_type_is_no_unbuilt_one() -> None:
    with pytest.raises(InputError, match="nearest: qwen3"):
        model_from_config({"model_type": "qwem3", **SIZES}, "m", "config.json")


def test_default_configurations_of_transformers_are_read_or_refused() -> None:
    """Every family with a causal or an image-and-text class; a refusal names what it has."""
    from transformers.models.auto import modeling_auto as auto

    names = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    names |= {*auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    assert names == TRANSFORMERS_TYPES
    read = 0
    for name in sorted(names):
        document = default_document(name)
        try:
            model_from_config(document, name, "config.json")
        except ShardwrightError as error:
            text = str(error)
            assert "\n" not in text
            if name not in MODEL_TYPES:
                features = text.partition(f"model_type {name} (")[2].partition(") is not built")[0]
                assert features
                assert "nearest: " in text
            else:  # a class with a default that makes no model
                assert "; allowed: " in text or "; use " in text
        else:
            read += 1
    assert read >= 60


def test_a_configuration_object_is_its_document() -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(**SIZES)
    document = config_document(config)
    assert document is not None
    assert document["hidden_size"] == 64
    assert config_document(LlamaConfig) is None
    assert config_document({"model_type": "llama"}) is None
