"""Models by name, by file and from the local hub cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.models.load import DEFAULT_MODEL, load_model, presets
from shardwright.datasets.models.typed_model import model_from_keys
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.model.layer_parameters import active_elements, layer_elements
from shardwright.spec.model.model_spec import BlockLayer, EmbeddingLayer, MultiTokenLayer

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "intermediate_size": 96,
}
SIZES = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 100}
TYPED = "layers: 4\nhidden: 64\nheads: 4\nvocab: 100\n"
PUBLISHED = {
    "smollm2-135m": (0.1345, None),
    "smollm2-360m": (0.362, None),
    "smollm2-1.7b": (1.71, None),
    "qwen2.5-0.5b": (0.494, None),
    "qwen2.5-1.5b": (1.54, None),
    "qwen2.5-3b": (3.09, None),
    "qwen3-0.6b": (0.596, None),
    "qwen3-1.7b": (1.72, None),
    "qwen3-4b": (4.02, None),
    "llama-3.2-1b": (1.236, None),
    "llama-3.2-3b": (3.213, None),
    "gemma-3-1b": (0.302 + 0.698, None),
    "gemma-3-4b": (3.209 + 0.675, None),
    "mt-nlg-530b": (530, None),
    "qwen2.5-72b": (72.7, None),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "qwen3-next-80b-a3b": (80, None),
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (141, 39),
    "deepseek-v2": (236, 21),
    "kimi-k2": (1030, 32.6),
    "moonlight": (16, 2.9),
    "gpt-oss-120b": (116.8, None),
    "nemotron-h-8b": (8.1, None),
    "nemotron-3-nano": (31.6, 3.6),
    "nemotron-4-340b": (341, None),
    "bert-large": (0.335, None),
    "t5-large": (0.738, None),
    "vit-h": (0.632, None),
    "vit-22b": (21.743 + 6144 * 30_000e-9, None),
}
"""Billions of parameters, all and active, as the sources of the presets print them.

Of ViT-22B table 1 counts the blocks; the classifier is ours. Qwen3-Next is called 80B with the
further-token layer that its configuration leaves out. gpt-oss counts its active ones without the
embedding. Gemma 3 counts its embedding apart, and has no vision tower here."""


def test_presets_that_were_asked_for_have_sources() -> None:
    assert set(presets()) >= {
        "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b", "llama-2-7b", "llama-2-13b",
        "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.1-405b", "mistral-7b", "qwen2.5-7b",
        "qwen2.5-32b", "qwen3-8b", "deepseek-v3", "llava-1.5-7b", *PUBLISHED, DEFAULT_MODEL,
    }  # fmt: skip
    assert all(len(preset.source) > 20 for preset in presets().values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_as_large_as_published(name: str) -> None:
    model, (total, active) = presets()[name].model, PUBLISHED[name]
    assert model.param_count() / 1e9 == pytest.approx(total, rel=5e-3)
    if active is not None:
        assert model.active_param_count() / 1e9 == pytest.approx(active, rel=2e-2)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-v3", 671, 37), ("nemotron-3-super", 120.6, 12.7)],
)
def test_multi_token_layers_come_on_top_of_published_sizes(
    name: str, total: float, active: float
) -> None:
    model = presets()[name].model
    (further,) = (x for x in model.layers() if isinstance(x, MultiTokenLayer))
    assert (model.param_count() - layer_elements(further)) / 1e9 == pytest.approx(total, rel=1e-3)
    used = model.active_param_count() - active_elements(further)
    assert used / 1e9 == pytest.approx(active, rel=2e-2)


def test_a_preset_may_have_a_second_name() -> None:
    nemotron = presets()["nemotron"]
    assert nemotron.model == presets()["nemotron-h-8b"].model
    assert nemotron.source.startswith("nemotron-h-8b: ")


def test_presets_load_in_any_case_without_assumptions_of_size() -> None:
    model, assumptions = load_model("LLaMA-3-70B")
    assert model.name == "llama-3-70b"
    assert assumptions == ()
    _, assumptions = load_model("gpt2")
    assert [note.value for note in assumptions] == ["dropout 0.1"]


def test_the_default_model_fits_a_laptop() -> None:
    model, _ = load_model(DEFAULT_MODEL)
    assert (model.block_count, model.hidden, model.vocab) == (6, 256, 2048)
    assert not model.tie_embeddings
    assert 16 * model.param_count() < 2**27  # states of fp32 AdamW in 128 MiB


def test_a_folder_and_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    from_folder, assumptions = load_model(str(folder))
    from_file, _ = load_model(str(folder / "config.json"))
    assert from_folder == from_file
    assert from_folder.name == "tiny-llama"
    assert any(note.path == "model.num_key_value_heads" for note in assumptions)
    (tmp_path / "mine.json").write_text(json.dumps(CONFIG))
    assert load_model(str(tmp_path / "mine.json"))[0].towers == from_file.towers


def test_a_spelled_out_model(tmp_path: Path) -> None:
    model, _ = load_model("qwen3-8b")
    path = tmp_path / "spec.json"
    path.write_text(canonical_json(model))
    assert load_model(str(path))[0] == model
    document = json.loads(path.read_text())
    document["towers"][0]["layers"].reverse()
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="an embedding, blocks and a head"):
        load_model(str(path))


def _cache(root: Path, name: str, commits: dict[str, dict[str, Any]], main: str | None) -> None:
    folder = root / f"models--{name.replace('/', '--')}"
    for commit, config in commits.items():
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
    if main is not None:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(main)


def test_a_hub_name_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    newer = {**CONFIG, "num_hidden_layers": 3}
    _cache(tmp_path / "hub", "some-org/Tiny.1", {"aaa": CONFIG, "bbb": newer}, "bbb")
    model, _ = load_model("some-org/Tiny.1")
    assert (model.name, model.block_count) == ("Tiny.1", 3)
    _cache(tmp_path / "hub", "some-org/other", {"ccc": CONFIG}, None)
    assert load_model("some-org/other")[0].block_count == 2


def test_a_hub_name_elsewhere_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "nothing"))
    with pytest.raises(InputError) as caught:
        load_model("meta-llama/Llama-2-7b-hf")
    assert "https://huggingface.co/meta-llama/Llama-2-7b-hf/resolve/main/config.json" in str(
        caught.value
    )
    assert "llama-2-7b" in str(caught.value.nearest)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama3-8b", "llama-3-8b"),
        ("gpt-2", "gpt2"),
        ("nonsense of another kind", ""),
        ("", DEFAULT_MODEL),
        ("x" * 5000, DEFAULT_MODEL),
        ("x" * 900, ""),
        ("gpt2\x00", DEFAULT_MODEL),
        ("a\nb.json", DEFAULT_MODEL),
        ("missing.json", ""),
        ("./missing", ""),
        ("a/b/c", ""),
        ("../../etc/passwd", ""),
    ],
)
def test_unknown_models_are_one_line(name: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert near in str(caught.value.nearest or "")


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder without config\.json"):
        load_model(str(tmp_path))


def test_typed_defaults_are_listed() -> None:
    model, assumptions = model_from_keys(SIZES, "mine", "mine.yaml")
    taken = {note.path.removeprefix("model."): note.value for note in assumptions}
    block = model.layers()[1]
    assert isinstance(block, BlockLayer)
    assert taken["ffn"] == block.mlp.ffn == 192  # 8/3 x 64 is 170.7
    assert taken["kv_heads"] == block.attention.kv_heads == 4
    assert taken["head_dim"] == block.attention.head_dim == 16
    assert (taken["activation"], taken["position"]) == ("swiglu", "rope")
    stated = {**SIZES, **taken}
    again, none = model_from_keys(stated, "mine", "mine.yaml")
    assert again == model
    assert none == ()


def test_typed_gelu_takes_four_times_hidden() -> None:
    model, _ = model_from_keys({**SIZES, "activation": "gelu"}, "m", "m.yaml")
    assert [x.mlp.ffn for x in model.kinds() if isinstance(x, BlockLayer)] == [256]


@pytest.mark.parametrize(
    ("keys", "positions"),
    [({}, 0), ({"position": "none"}, 0), ({"position": "learned"}, None),
     ({"position": "learned", "positions": 77}, 77)],
)  # fmt: skip
def test_typed_positions(keys: dict[str, Any], positions: int | None) -> None:
    model, _ = model_from_keys({**SIZES, **keys}, "m", "m.yaml")
    first = model.layers()[0]
    assert isinstance(first, EmbeddingLayer)
    assert first.positions == positions
    if positions is None:
        assert model.param_count(seq_len=128) - model.param_count(seq_len=127) == 64


@given(
    st.integers(1, 200),
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 10**6),
    st.booleans(),
    st.sampled_from(["gelu", "gelu_tanh", "swiglu"]),
)
def test_typed_sizes_give_the_parameters_of_the_formula(
    layers: int, heads: int, half_head: int, vocab: int, tied: bool, activation: str
) -> None:
    hidden = heads * half_head * 2
    keys = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocab": vocab,
        "ffn": 3 * hidden,
        "activation": activation,
        "tie_embeddings": tied,
    }
    model, _ = model_from_keys(keys, "m", "m.yaml")
    matrices = 3 if activation == "swiglu" else 2
    block = 4 * hidden**2 + matrices * hidden * 3 * hidden + 2 * hidden
    ends = vocab * hidden * (1 if tied else 2) + hidden
    assert model.param_count() == layers * block + ends


@pytest.mark.parametrize(
    ("line", "named", "near"),
    [
        ("layers: true", "layers: got true", ""),
        ('layers: "512"', 'layers: got "512"', "512"),
        ("layers: 512.0", "layers: got 512.0", "512"),
        ("layers: 1e9", 'layers: got "1e9"', "1000000000"),
        ("layers: no", 'layers: got "no"', ""),
        ("layers: 0", "layers: got 0", "1"),
        ("layers: -4", "layers: got -4", "4"),
        ("layers: 9999999999999999", "layers: got 9999999999999999", "1099511627776"),
        ("layers:", "layers: got nothing", ""),
        ("tie_embeddings: no", 'tie_embeddings: got "no"', "false"),
        ("tie_embeddings: 1", "tie_embeddings: got 1", "true"),
        ("hiden: 3", "hiden", "hidden"),
        ("heads: 5", "heads: got 5", "4"),
        ("kv_heads: 3", "kv_heads: got 3", "2"),
        ("kv_heads: 8", "kv_heads: got 8", "4"),
        ("activation: swigluu", "activation", "swiglu"),
        ("norm: rms", "norm", "rmsnorm"),
        ("position: rotary", "position", ""),
        ("positions: 5", "positions", ""),
        ("norm_eps: 0", "norm_eps", ""),
        ("head_dim: 7", "head_dim", "8"),
        ("rope_theta: .inf", "rope_theta", ""),
        ("window: 2.5", "window", "2"),
    ],
)
def test_typed_mistakes(tmp_path: Path, line: str, named: str, near: str) -> None:
    key = line.partition(":")[0]
    rest = [other for other in TYPED.splitlines() if not other.startswith(f"{key}:")]
    path = tmp_path / "m.yaml"
    path.write_text("\n".join([*rest, line]) + "\n")
    with pytest.raises(InputError) as caught:
        load_model(str(path))
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert near in str("" if caught.value.nearest is None else caught.value.nearest)


def test_rope_theta_without_rope_is_a_contradiction() -> None:
    with pytest.raises(InputError, match="unless position is rope"):
        model_from_keys({**SIZES, "position": "none", "rope_theta": 1e4}, "m", "m.yaml")


def test_what_is_simplified_is_not_called_unpriced() -> None:
    (note,) = load_model("llava-1.5-7b")[1]
    assert "priced as if" in str(note.value)
    assert note.why.endswith("simplified")
    assert "neither priced" not in note.why
    (left_out,) = load_model("bert-large")[1]
    assert left_out.why.endswith("neither priced nor run")
