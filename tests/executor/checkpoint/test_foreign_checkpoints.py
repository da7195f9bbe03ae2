"""Samples that other frameworks wrote: every tensor as torch loads it; the next losses theirs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks.foreign_jobs import go_on
from ranks.foreign_samples import (
    DONE,
    FOLDER,
    SAMPLES,
    expected,
    next_steps,
    sample_model,
    sample_plan,
)
from safetensors.torch import save_file

from shardwright.api.execution.checkpoint_command import checkpoint_command
from shardwright.executor.checkpoint.foreign.convert import Conversion
from shardwright.executor.checkpoint.foreign.inspect import checkpoint_document
from shardwright.executor.checkpoint.foreign.weights import ForeignWeights
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.stage.initial_weights import parameter_name
from shardwright.executor.stage.weight_source import full_ranges
from shardwright.spec.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SEQ_LEN, SAME = 16, 1e-5


@pytest.fixture
def alone() -> Iterator[RankContext]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield RankContext(0, 1, torch.device("cpu"), 60.0, lambda _: None)
    dist.destroy_process_group()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_tensor_and_moment_is_as_torch_loads_it(name: str) -> None:
    weights = ForeignWeights(FOLDER / name, sample_model(), SEQ_LEN)
    weights.require_optimizer()
    assert weights.step() == DONE
    values = expected(name)
    for index, spec in weights.parameters():
        ours = parameter_name(index, spec)
        whole = full_ranges(spec)
        assert torch.equal(weights.read_range(index, spec, whole), values[f"model.{ours}"])
        part = ((1, spec.shape[0]), *whole[1:])
        for key in ("exp_avg", "exp_avg_sq"):
            found = weights.read_state(key, index, spec, part)
            assert torch.equal(found, values[f"optimizer.{key}.{ours}"][1:])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_next_losses_are_the_frameworks(name: str, alone: RankContext, tmp_path: Path) -> None:
    later = next_steps(name)
    save_file({k: v.contiguous() for k, v in expected(name).items()}, tmp_path / "expected")
    payload = {
        "plan": sample_plan(ranks=1).to_document(),
        "folder": str(FOLDER / name),
        "tokens": later["tokens"],
        "done": DONE,
        "expected": str(tmp_path / "expected"),
    }
    found = go_on(alone, payload)
    assert found["step"] == DONE
    assert not found["wrong"]
    assert found["losses"] == pytest.approx(later["losses"], rel=SAME)


@pytest.mark.parametrize("name", SAMPLES[:1])
@pytest.mark.parametrize("target", ["dcp", "shardwright"])
def test_a_round_trip_is_bit_equal(name: str, target: str, tmp_path: Path) -> None:
    model = sample_model()
    Conversion(FOLDER / name, model, SEQ_LEN, tmp_path / "one").to(target)
    first = ForeignWeights(tmp_path / "one", model, SEQ_LEN)
    values = expected(name)
    assert first.step() == DONE
    for index, spec in first.parameters():
        ours, whole = parameter_name(index, spec), full_ranges(spec)
        assert torch.equal(first.read_range(index, spec, whole), values[f"model.{ours}"])
        for key in ("exp_avg", "exp_avg_sq"):
            moment = first.read_state(key, index, spec, whole)
            assert torch.equal(moment, values[f"optimizer.{key}.{ours}"])
    document = checkpoint_document(tmp_path / "one")
    assert (document["step"], document["damages"], document["missing"]) == (DONE, 0, [])


@pytest.mark.parametrize("way", ["dcp", "hf"])
def test_ours_there_and_back_is_bit_equal(way: str, tmp_path: Path) -> None:
    model, values = sample_model(), expected(SAMPLES[0])
    Conversion(FOLDER / SAMPLES[0], model, SEQ_LEN, tmp_path / "ours").to("shardwright")
    Conversion(tmp_path / "ours", model, SEQ_LEN, tmp_path / way).to(way)
    back = tmp_path / way
    if way == "dcp":  # a folder of transformers has no optimizer, which ours needs
        Conversion(back, model, SEQ_LEN, back := tmp_path / "back").to("shardwright")
    first, last = (ForeignWeights(path, model, SEQ_LEN) for path in (tmp_path / "ours", back))
    for index, spec in first.parameters():
        ours, whole = parameter_name(index, spec), full_ranges(spec)
        pair = [weights.read_range(index, spec, whole) for weights in (first, last)]
        assert torch.equal(*pair)
        assert torch.equal(pair[0], values[f"model.{ours}"])
        for key in ("exp_avg", "exp_avg_sq") if way == "dcp" else ():
            moments = [weights.read_state(key, index, spec, whole) for weights in (first, last)]
            assert torch.equal(*moments)
    if way == "dcp":
        assert last.step() == DONE


def test_a_folder_for_transformers_is_bit_equal(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    Conversion(FOLDER / SAMPLES[0], sample_model(), SEQ_LEN, tmp_path / "hf").to("hf")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict()
    values = expected(SAMPLES[0])
    assert torch.equal(loaded["model.embed_tokens.weight"], values["model.layers.0.tokens.weight"])
    query = loaded["model.layers.1.self_attn.q_proj.weight"]
    assert torch.equal(query, values["model.layers.2.query.weight"])


def test_flipped_bits_are_damage(tmp_path: Path) -> None:
    source = FOLDER / SAMPLES[0]
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    broken = sorted(tmp_path.glob("*.distcp"))[0]
    data = bytearray(broken.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 2048):  # more than any padding
        data[place] ^= 1
    broken.write_bytes(data)
    assert checkpoint_document(tmp_path)["damages"] >= 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-700])


def _exit_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Exit code of ``plan checkpoint``, without a second process."""
    monkeypatch.setattr(
        "shardwright.api.execution.checkpoint.checkpoint_document",
        lambda path, *_: checkpoint_document(Path(path)),
    )
    flags = {"path": str(folder), "to": None, "out": None, "model": None, "json_target": None}
    with pytest.raises(SystemExit) as ended:
        checkpoint_command(flags)
    return ended.value.code


@pytest.mark.parametrize("kind", ["archive", "lost file", "safetensors", ".metadata"])
def test_torn_files_end_with_3(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "safetensors":
        save_file({"a": torch.ones(800)}, tmp_path / "x.safetensors")
        _cut(tmp_path / "x.safetensors")
    else:
        shutil.copytree(FOLDER / SAMPLES[0], tmp_path, dirs_exist_ok=True)
        archive = tmp_path / "__1_0.distcp"
        if kind == "lost file":
            archive.unlink()
        else:
            _cut(archive if kind == "archive" else tmp_path / ".metadata")
    assert _exit_code(tmp_path, monkeypatch) == 3
    shown = capsys.readouterr().out
    assert "cannot be looked into" in shown
    assert "damaged: " in shown


def test_junk_in_the_place_of_an_index_is_told(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"junk")
    (damage,) = checkpoint_document(tmp_path)["damaged"]
    assert damage.endswith(".metadata: it is no pickle of torch's: other bytes begin it")


def test_another_model_is_refused_by_its_first_tensor() -> None:
    model = sample_model()
    from generators.plan_cases import Sizes

    other = Sizes(blocks=2, hidden=16, ffn=40, vocab=32).model()
    assert other != model
    with pytest.raises(InputError, match=r"shape \(.*allowed: shape \("):
        ForeignWeights(FOLDER / SAMPLES[0], other, SEQ_LEN)
