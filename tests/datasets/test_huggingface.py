"""Models from config.json against what transformers itself counts (fixtures/, no import here)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.datasets.models.load import presets
from shardwright.spec.errors import InputError, NotBuiltError, ShardwrightError
from shardwright.spec.huggingface.config import MODEL_TYPES, model_from_config
from shardwright.spec.model.model_spec import BlockLayer, ModelSpec
from shardwright.spec.rules.model_rules import model_problems

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
        ({"model_type": "llama4"}, NotBuiltError, "nearest: llama4_text"),
        ({"model_type": "gemma3n"}, NotBuiltError, "embeddings of each layer"),
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


CONFIGS: list[dict[str, Any]] = json.loads((FIXTURE.parent / "model_configs.json").read_text())
JUNK: tuple[Any, ...] = (
    None, -1, 0, 1.5, 7, "x", "", True, [], [1], ["x"], {}, {"a": 1}, 10**30, float("nan"),
)  # fmt: skip


def _named(name: str) -> dict[str, Any]:
    return dict(next(row["config"] for row in CONFIGS if row["name"] == name))


@pytest.mark.parametrize("name", [row["name"] for row in CONFIGS if not row["source"]])
def test_junk_under_any_key_is_read_or_refused_in_one_line(name: str) -> None:
    config = _named(name)
    places = [(config, key) for key in config]
    places += [(part, key) for part in config.values() if isinstance(part, dict) for key in part]
    for document, key in places:
        kept = document[key]
        for junk in JUNK:
            document[key] = junk
            assert "\n" not in _refusal(config)
        document[key] = kept


def _refusal(config: dict[str, Any]) -> str:
    """Why a configuration is refused; empty if it is not. Anything but our errors passes on."""
    try:
        list(model_problems(model_from_config(config, "m", "config.json")[0]))
    except ShardwrightError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "extra", "words"),
    [
        ("opt-125m", {"word_embed_proj_dim": 512}, "word_embed_proj_dim 512"),
        ("deepseek-v2", {"mlp_bias": True}, "mlp_bias true"),
        ("deepseek-v2", {"topk_method": "random"}, "topk_method"),
        ("deepseek-v2", {"moe_layer_freq": 2}, "moe_layer_freq 2"),
        ("deepseek-v2", {"topk_group": None}, "topk_group: got nothing"),
        ("bert-large", {"is_decoder": True}, "is_decoder"),
        ("bert-large", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("vit-h-14", {"image_size": [224, 112]}, "use a square"),
        ("vit-h-14", {"patch_size": 15}, "a divisor of 224"),
        ("t5-large", {"feed_forward_proj": "soft-relu"}, "nearest: relu, gated-gelu"),
        ("mamba2-130m", {"num_heads": 23}, "expand x hidden_size"),
        ("nemotron-h-8b", {"num_hidden_layers": 51}, "52, as many as the pattern"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "MAMBA"}, "letters M"),
        ("nemotron-3-nano-30b-a3b", {"mlp_bias": True}, "use false beside experts"),
        ("llava-1.5-7b", {"text_config": {"model_type": "opt"}}, "nearest: llama"),
        ("llava-1.5-7b", {"vision_feature_layer": [-2, -5]}, "use one layer"),
        ("gemma-3-1b", {"model_type": "gemma3"}, "vision_config: got null"),
        ("gpt-neox-20b", {"rotary_pct": 0.01}, "an even number of channels"),
        ("qwen3-next-80b-a3b", {"linear_num_value_heads": 24}, "a multiple of"),
    ],
)
def test_what_a_family_cannot_say_is_refused_by_name(
    name: str, extra: dict[str, Any], words: str
) -> None:
    with pytest.raises(ShardwrightError) as caught:
        model_from_config({**_named(name), **extra}, "m", "config.json")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_published_storage_formats_are_not_what_is_trained_in() -> None:
    plain, _ = model_from_config(_named("deepseek-v3"), "m", "c")
    stored = {**_named("deepseek-v3"), "quantization_config": {"quant_method": "fp8"}}
    model, notes = model_from_config(stored, "m", "c")
    assert model == plain
    assert any(note.path == "model.quantization_config" and "fp8" in note.why for note in notes)
    with pytest.raises(NotBuiltError, match="quantised weights"):
        model_from_config({**stored, "quantization_config": {"quant_method": "awq"}}, "m", "c")


def test_a_nested_configuration_names_its_place() -> None:
    config = _named("llava-1.5-7b")
    config["text_config"] = {k: v for k, v in config["text_config"].items() if k != "vocab_size"}
    with pytest.raises(InputError, match="text_config: vocab_size: got nothing"):
        model_from_config(config, "m", "config.json")
    _, notes = model_from_config(_named("llava-1.5-7b"), "m", "c")
    assert any(note.path.startswith("model.vision_config.") for note in notes)


def test_gemma3_angles_by_kind_of_layer() -> None:
    model, _ = model_from_config(_named("gemma-3-1b"), "m", "c")
    blocks = [layer for layer in model.layers() if isinstance(layer, BlockLayer)]
    seen = {(b.attention.window, b.attention.rope_theta) for b in blocks}  # type: ignore[union-attr]
    assert seen == {(512, 10000.0), (None, 1e6)}
    assert [i for i, b in enumerate(blocks) if b.attention.window is None] == [5, 11, 17, 23]  # type: ignore[union-attr]
