"""Folders of the transformers library: what is read, what is refused, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from generators.plan_cases import GPT2, LLAMA, QWEN3, Sizes
from hf.hf_checkpoints import CONFIGS, SEQ_LEN, case_for, model_in, save_tiny
from safetensors.torch import load_file, save_file

from shardwright.executor.data.text import load_tokens
from shardwright.executor.huggingface.config import config_for, difference
from shardwright.executor.huggingface.families import (
    layer_pieces,
    mapping,
    own_parameters,
    tensor_shapes,
)
from shardwright.executor.huggingface.reader import HuggingFaceCheckpoint
from shardwright.executor.huggingface.tokenizer import tokenizer_files
from shardwright.executor.huggingface.writer import FolderWriter
from shardwright.executor.stage.weight_source import full_ranges
from shardwright.executor.train.run_endpoints import RunEndpoints, default_tokenizer
from shardwright.spec.errors import InputError, NotBuiltError
from shardwright.spec.huggingface.config import model_from_config
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import BlockLayer, ModelSpec


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    return {kind: save_tiny(kind, root / kind) for kind in CONFIGS}


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for path in folder.glob("*.safetensors") for k, v in load_file(path).items()}


def write_again(folder: Path, target: Path, model: ModelSpec, shard_bytes: int) -> None:
    """Read every whole parameter and write it, as a run's end does."""
    source = HuggingFaceCheckpoint(folder, model, SEQ_LEN)
    pieces, layers = mapping(source.config), range(len(model.layers()))
    shapes: dict[str, tuple[int, ...]] = {}
    for index in layers:
        shapes |= tensor_shapes(model, index, SEQ_LEN, pieces)
    writer = FolderWriter(target, shapes, shard_bytes=shard_bytes)
    for index in layers:
        values = {
            spec.name: source.read_range(index, spec, full_ranges(spec))
            for spec in own_parameters(model, index, SEQ_LEN)
        }
        made: dict[str, torch.Tensor] = {}
        for spec, piece in layer_pieces(model, index, SEQ_LEN, pieces):
            piece.put(values[spec.name], made.setdefault(piece.name, torch.empty(piece.shape)))
        for name, tensor in made.items():
            writer.add(name, tensor)
    writer.finish({"config.json": source.config}, {})


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("shard_bytes", [10_000, 10**9])
def test_reading_and_writing_gives_the_same_tensors(
    folders: dict[str, Path], kind: str, shard_bytes: int, tmp_path: Path
) -> None:
    write_again(folders[kind], tmp_path / "again", model_in(folders[kind]), shard_bytes)
    found, expected = tensors_of(tmp_path / "again"), tensors_of(folders[kind])
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    files = sorted(path.name for path in (tmp_path / "again").glob("*.safetensors"))
    assert (len(files) > 1) == (shard_bytes == 10_000)
    if len(files) > 1:
        index = json.loads((tmp_path / "again" / "model.safetensors.index.json").read_text())
        assert sorted(set(index["weight_map"].values())) == files
        assert index["metadata"]["total_size"] == 4 * sum(t.numel() for t in expected.values())
        write_again(tmp_path / "again", tmp_path / "one", model_in(folders[kind]), 10**9)
        assert tensors_of(tmp_path / "one").keys() == expected.keys()


@pytest.mark.parametrize("kind", CONFIGS)
def test_parts_are_slices_of_the_whole(folders: dict[str, Path], kind: str) -> None:
    model = model_in(folders[kind])
    source = HuggingFaceCheckpoint(folders[kind], model, SEQ_LEN)
    for index in range(len(model.layers())):
        for spec in own_parameters(model, index, SEQ_LEN):
            whole = source.read_range(index, spec, full_ranges(spec))
            assert whole.shape == spec.shape
            assert whole.is_contiguous()
            for dim, size in enumerate(spec.shape):
                ranges = list(full_ranges(spec))
                ranges[dim] = (size // 2, size)
                part = source.read_range(index, spec, tuple(ranges))
                assert torch.equal(part, whole.narrow(dim, size // 2, size - size // 2))


def test_files_of_a_bare_model_are_read_too(folders: dict[str, Path], tmp_path: Path) -> None:
    """As the first published GPT-2: no ``transformer.``, and masks that are no weights."""
    tensors = {k.removeprefix("transformer."): v for k, v in tensors_of(folders["gpt2"]).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 24, 24)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folders["gpt2"] / "config.json").read_text())
    model = model_in(tmp_path)
    bare, usual = (
        HuggingFaceCheckpoint(tmp_path, model, SEQ_LEN),
        HuggingFaceCheckpoint(folders["gpt2"], model, SEQ_LEN),
    )
    for spec in own_parameters(model, 1, SEQ_LEN):
        ranges = full_ranges(spec)
        assert torch.equal(bare.read_range(1, spec, ranges), usual.read_range(1, spec, ranges))
    assert bare.digest() != usual.digest()


Change = Callable[[Path], None]


def edit_config(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def edit_tensors(edit: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    def change(folder: Path) -> None:
        tensors = tensors_of(folder)
        edit(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return change


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def only_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


NORM = "model.norm.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"
SCALED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0}
REFUSED: dict[str, tuple[Change, str]] = {
    "hidden": (edit_config(hidden_size=64, head_dim=8), "hidden: got 64; allowed: 32"),
    "layers": (edit_config(num_hidden_layers=2), "block_count: got 2; allowed: 3"),
    "kv heads": (edit_config(num_key_value_heads=4), "kv_heads: got 4; allowed: 2"),
    "eps": (edit_config(rms_norm_eps=1e-5), "norm_eps: got 1e-05; allowed: 1e-06"),
    "theta": (
        edit_config(rope_parameters={"rope_type": "default", "rope_theta": 7.0}),
        "rope_theta: got 7",
    ),
    "tied": (edit_config(tie_word_embeddings=True), "tie_embeddings: got true; allowed: false"),
    "another family": (edit_config(model_type="phi3"), "weights of model_type phi3"),
    "scaled angles": (edit_config(rope_parameters=SCALED), 'rope_scaling "llama3"'),
    "a missing tensor": (edit_tensors(lambda t: t.pop(NORM)), f"no tensor {NORM}"),
    "a tensor too many": (
        edit_tensors(lambda t: t.update({"model.layers.0.extra.bias": torch.ones(3)})),
        "tensor model.layers.0.extra.bias",
    ),
    "another shape": (
        edit_tensors(lambda t: t.update({GATE: torch.ones(40, 32)})),
        r"gate_proj.weight: got shape \(40, 32\); allowed: shape \(48, 32\)",
    ),
    "whole numbers": (
        edit_tensors(lambda t: t.update({NORM: torch.ones(32, dtype=torch.int64)})),
        "got I64; allowed: one of F64",
    ),
    "a cut file": (cut, "a whole safetensors file"),
    "pickled": (only_pickled, "files that unpickle are not read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    change, message = REFUSED[name]
    folder = save_tiny("llama", tmp_path / "llama")
    model = model_in(folder)
    change(folder)
    with pytest.raises((InputError, NotBuiltError), match=message) as info:
        HuggingFaceCheckpoint(folder, model, SEQ_LEN)
    assert "\n" not in str(info.value)
    assert info.value.exit_code == 2


def test_experts_whose_weights_do_not_sum_to_one_are_read(tmp_path: Path) -> None:
    folder = save_tiny("qwen3_moe", tmp_path / "moe", norm_topk_prob=False)
    model = model_in(folder)
    HuggingFaceCheckpoint(folder, model, SEQ_LEN)
    mixtures = [moe for layer in model.layers() if (moe := experts_of(layer)) is not None]
    assert {moe.normalizes for moe in mixtures} == {False}


def test_an_index_names_files_of_its_own_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folders["llama"] / "config.json").read_text())
    for file in ("../llama/model.safetensors", "gone.safetensors"):
        index = {"weight_map": {NORM: file}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(InputError, match="files in the same folder"):
            HuggingFaceCheckpoint(tmp_path, model_in(tmp_path), SEQ_LEN)


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [(LLAMA, "llama"), (GPT2, "gpt2"), (QWEN3, "qwen3")],
    ids=lambda x: str(x)[:5],
)
def test_a_configuration_is_made_for_a_model_that_has_none(sizes: Sizes, kind: str) -> None:
    config = config_for(sizes.model(), SEQ_LEN)
    assert config["model_type"] == kind
    again, _ = model_from_config(config, "again", "config.json")
    assert difference(again, sizes.model(), SEQ_LEN) is None


def test_a_configuration_made_for_each_family_is_its_own(folders: dict[str, Path]) -> None:
    for kind, folder in folders.items():
        assert config_for(model_in(folder), SEQ_LEN)["model_type"] == kind


def test_a_model_that_the_library_has_no_class_for_is_refused() -> None:
    model = LLAMA.model()
    (tower,) = model.towers
    first, blocks, last = tower.layers
    block = blocks.layer
    assert isinstance(block, BlockLayer)
    assert isinstance(block.attention, Attention)
    odd = replace(block, attention=replace(block.attention, out_bias=True))
    runs = (first, replace(blocks, layer=odd), last)
    with pytest.raises(NotBuiltError, match="known: gpt2, llama"):
        config_for(replace(model, towers=(replace(tower, layers=runs),)), SEQ_LEN)


def test_a_folder_that_holds_something_is_not_written_over(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    plan = case_for(folders["llama"], "one", 1).plan()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    for target in ("full", "nowhere/target", "full/notes"):
        with pytest.raises(InputError, match="--save-hf"):
            RunEndpoints(plan, 0, None, str(tmp_path / target), None)
    assert (
        RunEndpoints(plan, 1, None, str(tmp_path / "full"), None).weight_source is None
    )  # rank 0 writes


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwright.executor.huggingface import writer as module
    from shardwright.spec.errors import RunError

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "flush_to_disk", full)
    writer = FolderWriter(tmp_path / "out", {"a": (2, 2)})
    with pytest.raises(RunError, match="No space left on device"):
        writer.add("a", torch.ones(2, 2))
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoints_tokenizer_is_the_usual_one_and_goes_along(tmp_path: Path) -> None:
    assert default_tokenizer(None, None, str(tmp_path)) is None
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    numbers = tmp_path / "numbers.bin"
    numbers.write_bytes(b"\0\0")
    own = tmp_path / "tokenizer.json"
    assert default_tokenizer(None, None, str(tmp_path)) == own
    assert default_tokenizer(numbers, None, str(tmp_path)) is None
    assert default_tokenizer(None, "other.json", str(tmp_path)) == Path("other.json")
    for data in (None, numbers):
        found = tokenizer_files(320, 64, data, None, tmp_path)
        assert list(found.copied) == ["tokenizer.json", "tokenizer_config.json"]
        assert found.documents == {}


def bpe(target: Path, *special: str) -> Path:
    """A small tokenizer on disk."""
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    tokenizer.add_special_tokens(list(special))
    target.parent.mkdir(exist_ok=True)
    tokenizer.save(str(target))
    return target


def test_a_tokenizer_of_ones_own_goes_along_by_the_usual_name(tmp_path: Path) -> None:
    own = bpe(tmp_path / "mine" / "letters.json", "<|endoftext|>")
    (tmp_path / "mine" / "tokenizer_config.json").write_text("{}")
    found = tokenizer_files(320, 64, None, own, tmp_path)
    assert found.copied == {"tokenizer.json": own}
    settings = found.documents["tokenizer_config.json"]
    assert settings["eos_token"] == "<|endoftext|>"
    assert settings["model_max_length"] == 64
    usual = bpe(tmp_path / "mine" / "tokenizer.json")
    found = tokenizer_files(320, 64, None, usual, tmp_path)
    assert list(found.copied) == ["tokenizer_config.json", "tokenizer.json"]
    assert found.documents == {}
    bare = bpe(tmp_path / "bare" / "tokenizer.json")
    found = tokenizer_files(320, 64, None, None, bare.parent)
    assert found.copied == {"tokenizer.json": bare}
    assert "eos_token" not in found.documents["tokenizer_config.json"]


def test_numbers_have_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(b"\0\0")
    assert tokenizer_files(320, 64, tmp_path / "numbers.bin", None, None) == ({}, {})
    assert tokenizer_files(64, 64, None, None, tmp_path, reads_text=False) == ({}, {})
    (tmp_path / "tokenizer.model").write_text("")
    found = tokenizer_files(320, 64, None, None, tmp_path)
    assert (list(found.copied), found.documents) == (["tokenizer.model"], {})


@pytest.mark.parametrize("kept", [True, False], ids=["cached", "trained again"])
def test_a_trained_tokenizer_is_the_one_that_made_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    from tokenizers import Tokenizer

    (tmp_path / "file").touch()
    cache = tmp_path / "cache" if kept else tmp_path / "file"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    words = "the same words again and again, in another order\n" * 40
    (tmp_path / "text.txt").write_text(words)
    tokens = load_tokens(300, tmp_path / "text.txt")
    found = tokenizer_files(300, 64, tmp_path / "text.txt", None, None)
    assert found.copied == {}
    tokenizer = Tokenizer.from_str(found.documents["tokenizer.json"])
    assert tokenizer.encode(words).ids == tokens.tolist()
    assert found.documents["tokenizer_config.json"]["eos_token"] == "<|endoftext|>"
    assert bool(list(tmp_path.glob("cache/*/*-tokenizer.json"))) == kept
