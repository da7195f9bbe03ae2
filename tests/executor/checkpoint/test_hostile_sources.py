"""Broken sources of every kind: a line each, and nothing is run or written."""

from __future__ import annotations

import codecs
import os
import pickletools
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks.checkpoint_files import two_ranks, write
from ranks.foreign_samples import FOLDER, SAMPLES, sample_model

from shardwright.executor.checkpoint.foreign.convert import Conversion
from shardwright.executor.checkpoint.foreign.inspect import checkpoint_document
from shardwright.executor.checkpoint.foreign.look import is_ours, look
from shardwright.executor.checkpoint.foreign.ours import read_ours
from shardwright.executor.checkpoint.foreign.tensors import TensorReader
from shardwright.spec.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
KINDS = (*SAMPLES, "safetensors", "ours")
EACH, LONGEST_S, MEMORY_KIB = 20, 1.0, 256 << 10
RUNS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "exec")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.link")
SEEN: list[str] = []
WATCHED = [False]


def _audit(event: str, given: tuple[object, ...]) -> None:
    if not WATCHED[0]:
        return
    opened = event == "open" and isinstance(given[2], int) and bool(given[2] & WRITES)
    if opened or event in RUNS or event in CHANGES:
        SEEN.append(f"{event} {given!r}"[:200])


sys.addaudithook(_audit)
for _name in ("raw-unicode-escape", "latin-1", "utf-8", "cp437", "ascii"):
    codecs.lookup(_name)  # a codec's first use loads a module, which is no code of a source


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole source of every kind."""
    root = tmp_path_factory.mktemp("sources")
    Conversion(FOLDER / SAMPLES[0], sample_model(), 16, root / "hf").to("hf")
    ours = write(root / "ours", 3, two_ranks())
    return {**{name: FOLDER / name for name in SAMPLES}, "safetensors": root / "hf", "ours": ours}


def _broken(source: Path, target: Path, number: int) -> None:
    """Break one file of a copy: cut, bits flipped, bytes put in, one file as another, a link."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    chance = random.Random(number)
    path = chance.choice(sorted(target.glob("*.safetensors")) or sorted(target.iterdir()))
    data = bytearray(path.read_bytes())
    kind, place = number % 5, chance.randrange(max(1, min(len(data), 4000)))
    if kind == 0:
        del data[chance.randrange(len(data)) :]
    elif kind == 1:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 2:
        data[place:place] = chance.randbytes(chance.randrange(1, 9))
    elif kind == 3:
        data[place : place + 8] = (1 << 62).to_bytes(8, chance.choice(["little", "big"]))
    else:
        path.unlink()
        path.symlink_to("/dev/zero")
        return
    path.write_bytes(data)


def _taken(folder: Path) -> Iterator[str]:
    """Lines said of a source that is looked into and read."""
    try:
        document = checkpoint_document(folder)
        yield from document["damaged"]
        source = read_ours(folder)[0] if is_ours(folder) else look(folder, "--init-from")
        reader = TensorReader(source)
        for name in source.tensors:
            reader.read(name)
        for name in source.values:
            source.read_value(name)
    except InputError as error:
        yield str(error)


def _looked(folder: Path) -> Iterator[str]:
    try:
        look(folder, "--init-from")
    except InputError as error:
        yield str(error)


def _watched(folder: Path, take: Callable[[Path], Iterator[str]] = _taken) -> list[str]:
    SEEN.clear()
    WATCHED[0] = True
    start_s = time.process_time()
    try:
        lines = [*take(folder)]
    finally:
        WATCHED[0] = False
    assert time.process_time() - start_s < LONGEST_S
    assert SEEN == []
    assert not any("\n" in line for line in lines)
    return lines


@pytest.mark.parametrize("kind", KINDS)
def test_broken_sources_are_told_of(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    assert [*_taken(sources[kind])] == []  # one warm process: schemas and modules are loaded
    assert _watched(sources[kind]) == []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = 0
    for number in range(EACH):
        _broken(sources[kind], tmp_path / kind, number)
        told += bool(_watched(tmp_path / kind))
    assert told > EACH // 3  # a flipped bit of a number or a name without a digest may pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_KIB


@pytest.mark.parametrize("file", [".metadata", "common.pt"])
def test_every_operation_of_a_pickle_is_harmless(
    file: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "target"
    name = "megatron_llama"
    shutil.copytree(sources[name], target)
    whole = (target / file).read_bytes()
    for operation in pickletools.opcodes[:: 1 if file == ".metadata" else 4]:
        code = operation.code.encode("latin-1")
        call = b"\x80\x04cos\nsystem\n(X\x06\x00\x00\x00touch t" + code + b"R."
        for data in (whole[:2] + code + whole[2:], call, code + b"\xff" * 12):
            (target / file).write_bytes(data)
            assert _watched(target, _looked) or data.startswith(whole[:2] + code)
