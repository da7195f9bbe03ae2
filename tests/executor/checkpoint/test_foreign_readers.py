"""Readers of other frameworks' files: equal to torch's own load; hostile ones refused in a line."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251 - hostile ones are made here, and never read by it
import random
import resource
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from shardwright.executor.checkpoint.foreign.look import look
from shardwright.executor.checkpoint.foreign.pickle_values import PickleError, pickle_values
from shardwright.executor.checkpoint.foreign.tensors import TensorReader
from shardwright.spec.errors import InputError

SEED = 3
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    return {
        "model.layers.0.weight": torch.randn(6, 5, generator=generator),
        "model.layers.0.half": torch.randn(4, 3, generator=generator).bfloat16(),
        "model.turned": torch.randn(3, 4, generator=generator).t(),
        "optim.step": torch.tensor(7.0),
        "empty": torch.empty(0, 4),
    }


@pytest.fixture(scope="module")
def folder(tensors: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dcp")
    dcp.save({**tensors, "optim.lr": 0.5, "betas": (0.9, 0.95)}, checkpoint_id=path, no_dist=True)
    return path


def test_tensors_are_bit_equal_to_torchs(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    source = look(folder, "--init-from")
    reader = TensorReader(source)
    assert set(source.tensors) == set(tensors)
    for name, value in tensors.items():
        found = reader.read(name)
        assert found.dtype == value.dtype
        assert torch.equal(found, value)
    assert reader.read("model.layers.0.weight", ((2, 4), (1, 5))).equal(
        tensors["model.layers.0.weight"][2:4, 1:5]
    )
    assert source.read_value("optim.lr") == 0.5
    assert source.read_value("betas") == (0.9, 0.95)


def test_a_range_reads_its_own_rows_alone(tmp_path: Path) -> None:
    save_file({"a": torch.arange(64.0).view(8, 8)}, tmp_path / "x.safetensors")
    reader = TensorReader(look(tmp_path, "--init-from"))
    assert reader.read("a", ((2, 3), (0, 8))).tolist() == [[16.0 + i for i in range(8)]]
    assert reader.bytes_read == 32


def test_safetensors_with_an_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(3).half()}, tmp_path / "two.safetensors")
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    reader = TensorReader(look(tmp_path, "--init-from"))
    assert reader.read("a").equal(torch.ones(2))
    assert reader.read("b").equal(torch.zeros(3).half())


@pytest.mark.parametrize("value", [os.system, eval, print, Path.unlink, random.Random(1)])
def test_a_foreign_name_is_refused_and_named(value: object) -> None:
    with pytest.raises(PickleError, match=r"it names|which none needs"):
        pickle_values(pickle.dumps(value, 4))


@pytest.mark.parametrize("files", ["zero_pp_rank_0_mp_rank_00.pt", "pytorch_model.bin", "x.pt"])
def test_what_is_not_read_is_refused_by_name(files: str, tmp_path: Path) -> None:
    (tmp_path / files).write_bytes(b"x")
    with pytest.raises(InputError, match=r"DeepSpeed|pickled"):
        look(tmp_path, "--init-from")


def test_a_folder_that_is_being_written(folder: Path, tmp_path: Path) -> None:
    shutil.copy(next(folder.glob("*.distcp")), tmp_path)
    with pytest.raises(InputError, match="being written"):
        look(tmp_path, "--init-from")


def test_flat_buffers_are_refused_by_name(tmp_path: Path) -> None:
    dcp.save({"layers.0._flat_param": torch.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.raises(InputError, match="FSDP1"):
        look(tmp_path, "--init-from")


def _hostile(good: Path, target: Path, number: int) -> None:
    """Break one file of a copy: cut, flipped bits, wrong sizes, other operations, other names."""
    shutil.copytree(good, target, dirs_exist_ok=True)
    chance = random.Random(number)
    path = chance.choice([target / ".metadata", *target.glob("*.distcp")])
    data = bytearray(path.read_bytes())
    kind = number % 5
    if kind == 0:
        del data[chance.randrange(len(data)) :]
    elif kind == 1:
        for _ in range(chance.randrange(1, 9)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 2:
        data[chance.randrange(min(len(data), 2000))] = chance.randrange(256)
    elif kind == 3:
        path, evil = target / ".metadata", (os.system, ("touch " + str(target / "ran"),))
        data = bytearray(pickle.dumps({"x": _Calls(*evil)}, chance.choice([0, 1, 2, 3, 4, 5])))
    else:
        path = target / ".metadata"
        data = bytearray(
            path.read_bytes().replace(
                b"__0_0.distcp", chance.choice([b"../0_0.distc", b"/etc/passwd\0"])
            )
        )
    path.write_bytes(data)


class _Calls:
    def __init__(self, function: object, args: tuple[object, ...]) -> None:
        self.parts = (function, args)

    def __reduce__(self) -> tuple[object, ...]:
        return self.parts


def test_hostile_sources_are_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    ran: list[str] = []
    watching = True

    def hook(event: str, _: object) -> None:
        if watching and event in ("os.system", "subprocess.Popen", "pickle.find_class", "exec"):
            ran.append(event)

    sys.addaudithook(hook)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines: list[str] = []
    slowest_s = 0.0
    for number in range(400):
        target = tmp_path / "hostile"
        shutil.rmtree(target, ignore_errors=True)
        _hostile(folder, target, number)
        start_s = time.perf_counter()
        try:
            source = look(target, "--init-from")
            reader = TensorReader(source)
            for name in source.tensors:
                reader.read(name)
            for name in source.values:
                source.read_value(name)
        except InputError as error:
            lines.append(str(error))
        slowest_s = max(slowest_s, time.perf_counter() - start_s)
        assert not (target / "ran").exists()
    watching = False
    assert not ran
    assert not any("\n" in line for line in lines)
    assert len(lines) > 200  # a flipped bit of a number is refused only where digests are compared
    assert slowest_s < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024
