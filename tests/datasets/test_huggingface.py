"""Models from config.json against what transformers itself counts (fixtures/, no import here)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.datasets.catalogue.models import presets
from shardwright.spec.errors import InputError, NotBuiltError, ShardwrightError
from shardwright.spec.huggingface import MODEL_TYPES, model_from_config
from shardwright.spec.model import BlockLayer, ModelSpec

FIXTURE = Path(__file__).parent / "fixtures" / "parameter_counts.json"
ROWS: list[dict[str, Any]] = json.loads(FIXTURE.read_text())
PRESET_ROWS = [row for row in ROWS if row["preset"]]
VARIED_ROWS = [row for row in ROWS if not row["preset"]]
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def _block(model: ModelSpec, index: int = 1) -> BlockLayer:
    layer = model.layers()[index]
    assert isinstance(layer, BlockLayer)
    return layer


def test_the_fixture_covers_presets_and_families() -> None:
    assert {row["preset"] for row in PRESET_ROWS} <= set(presets())
    assert len(VARIED_ROWS) >= 15
    assert {row["given"]["model_type"] for row in VARIED_ROWS} <= set(MODEL_TYPES)


@pytest.mark.parametrize("row", PRESET_ROWS, ids=lambda row: row["preset"])
def test_presets_are_the_published_configurations(row: dict[str, Any]) -> None:
    preset = presets()[row["preset"]]
    model, _ = model_from_config(row["given"], row["preset"], "config.json")
    assert preset.model.param_count() == row["parameters"]
    assert preset.model == model  # every size, bias, norm and angle, not only the sum


@pytest.mark.parametrize("row", VARIED_ROWS, ids=lambda row: row["given"]["model_type"])
def test_parameters_equal_those_of_transformers(row: dict[str, Any]) -> None:
    model, _ = model_from_config(row["given"], "tiny", "config.json")
    assert model.param_count() == row["parameters"]
    # The file that transformers itself writes, with every default spelled out, is the same model.
    assert model_from_config(row["saved"], "tiny", "config.json")[0] == model


@pytest.mark.parametrize("row", VARIED_ROWS, ids=lambda row: row["given"]["model_type"])
def test_defaults_taken_are_those_of_the_class_and_are_listed(row: dict[str, Any]) -> None:
    _, assumptions = model_from_config(row["given"], "tiny", "config.json")
    for note in assumptions:
        key = note.path.removeprefix("model.")
        assert key not in row["given"] or key == "dropout"
        saved = row["saved"].get(key)
        if saved is not None and key in row["saved"]:
            assert saved == note.value, key
    assert assumptions


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "model_type"]
)
def test_sizes_must_be_stated(key: str) -> None:
    document = {k: v for k, v in LLAMA.items() if k != key}
    with pytest.raises(InputError, match=rf"{key}: got nothing"):
        model_from_config(document, "m", "config.json")


def test_gpt2_takes_either_spelling_of_its_sizes() -> None:
    own = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
    general = {**LLAMA, "model_type": "gpt2"}
    assert model_from_config(own, "m", "c")[0] == model_from_config(general, "m", "c")[0]


def test_class_defaults_by_family() -> None:
    assert _block(model_from_config(LLAMA, "m", "c")[0]).mlp.ffn == 11008
    mistral = {**LLAMA, "model_type": "mistral", "num_attention_heads": 16}
    block = _block(model_from_config(mistral, "m", "c")[0])
    assert (block.attention.kv_heads, block.attention.window, block.mlp.ffn) == (8, 4096, 14336)
    qwen3 = {**LLAMA, "model_type": "qwen3", "num_attention_heads": 32}
    block = _block(model_from_config(qwen3, "m", "c")[0])
    assert (block.attention.kv_heads, block.attention.head_dim) == (32, 128)
    assert block.attention.qk_norm


def test_rope_theta_is_read_in_both_places() -> None:
    plain = model_from_config({**LLAMA, "rope_theta": 5e5}, "m", "c")[0]
    nested = model_from_config({**LLAMA, "rope_parameters": {"rope_theta": 5e5}}, "m", "c")[0]
    assert plain == nested
    assert _block(plain).attention.rope_theta == 5e5


def test_qwen_windows_only_the_layers_that_have_one() -> None:
    qwen = {
        **LLAMA,
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "use_sliding_window": True,
        "sliding_window": 32,
        "max_window_layers": 3,
    }
    blocks = model_from_config(qwen, "m", "c")[0].layers()[1:-1]
    assert [b.attention.window for b in blocks if isinstance(b, BlockLayer)] == [None] * 3 + [32]
    listed = {**qwen, "layer_types": ["sliding_attention", "full_attention"] * 2}
    blocks = model_from_config(listed, "m", "c")[0].layers()[1:-1]
    assert [b.attention.window for b in blocks if isinstance(b, BlockLayer)] == [32, None] * 2
    off = model_from_config({**qwen, "use_sliding_window": False}, "m", "c")[0]
    assert _block(off, 4).attention.window is None


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ({"attention_dropout": 0.1}, "model.dropout"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "model.rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "model.rope_scaling"),
    ],
)
def test_what_is_neither_priced_nor_run_is_listed(extra: dict[str, Any], path: str) -> None:
    _, assumptions = model_from_config({**LLAMA, **extra}, "m", "c")
    assert any(n.path == path and "neither priced nor run" in n.why for n in assumptions)


def test_gpt2_dropout_by_default_is_listed() -> None:
    gpt2 = {**LLAMA, "model_type": "gpt2"}
    _, assumptions = model_from_config(gpt2, "m", "c")
    assert any(n.path == "model.dropout" for n in assumptions)
    silent = {**gpt2, "resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0}
    _, assumptions = model_from_config(silent, "m", "c")
    assert not any(n.path == "model.dropout" for n in assumptions)


@pytest.mark.parametrize(
    ("extra", "error", "words"),
    [
        ({"model_type": "lama"}, InputError, "nearest: llama"),
        ({"model_type": "nothing like it"}, InputError, "one of gpt2, opt, gpt_neox, llama,"),
        ({"model_type": "llama4"}, NotBuiltError, "nearest: mixtral"),
        ({"model_type": "olmo2"}, NotBuiltError, "norms after each part"),
        ({"num_local_experts": 8}, NotBuiltError, "experts in llama (num_local_experts)"),
        ({"quantization_config": {"bits": 4}}, NotBuiltError, "quantization_config"),
        ({"is_encoder_decoder": True}, NotBuiltError, "cross-attention"),
        ({"hidden_act": "tanh"}, NotBuiltError, "nearest: silu"),
        ({"partial_rotary_factor": 0.5}, NotBuiltError, "partial_rotary_factor"),
        ({"num_attention_heads": 5}, InputError, "nearest: 4"),
        ({"num_key_value_heads": 3}, InputError, "a divisor of num_attention_heads 4"),
        ({"head_dim": 15}, InputError, "an even number"),
        ({"hidden_size": "64"}, InputError, "nearest: 64"),
        ({"hidden_size": 64.0}, InputError, "nearest: 64"),
        ({"hidden_size": True}, InputError, "a whole number"),
        ({"num_hidden_layers": 0}, InputError, "nearest: 1"),
        ({"attention_bias": "no"}, InputError, "nearest: false"),
        ({"rope_scaling": 8}, InputError, "mappings"),
        ({"rope_theta": -1.0}, InputError, "nearest: 1"),
        ({"rms_norm_eps": 0}, InputError, "above 0"),
    ],
)
def test_refusals_are_one_line(
    extra: dict[str, Any], error: type[ShardwrightError], words: str
) -> None:
    with pytest.raises(error) as caught:
        model_from_config({**LLAMA, **extra}, "m", "config.json")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
