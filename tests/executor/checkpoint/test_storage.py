"""Checkpoints on a disk: cut and joined as plans need it, and no damage of them unseen."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks.checkpoint_files import RUN, files_of, flip, halves, tensor_at, two_ranks, write
from safetensors.torch import load_file
from torch import Tensor

from shardwright.executor.checkpoint.integrity import damages
from shardwright.executor.checkpoint.loader import FoundCheckpoint, load_slices
from shardwright.executor.checkpoint.manifest import (
    MANIFEST,
    DamagedManifestError,
    Manifest,
    read_manifest,
)
from shardwright.executor.checkpoint.reader import CheckpointReader
from shardwright.executor.checkpoint.storage.folders import prune, step_folders, sweep
from shardwright.executor.checkpoint.tensor_slices import SliceSavePlanner, TensorSlice, plan_saves
from shardwright.executor.checkpoint.writer import CheckpointWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, 20, two_ranks())


def test_a_checkpoint_is_its_files_and_no_code(folder: Path) -> None:
    names = [path.name for path in files_of(folder)]
    assert names == [MANIFEST, "rank-0000.safetensors", "rank-0001.safetensors"]
    manifest = read_manifest(folder)
    assert manifest.step == 20
    assert json.loads((folder / MANIFEST).read_text())["checkpoint"]["step"] == 20
    assert Manifest.from_text(manifest.text()) == manifest
    for name, stored in manifest.files.items():
        assert stored.bytes == (folder / name).stat().st_size
        held = {part.key for _, part in manifest.slices_of(name)}
        assert held == set(load_file(folder / name))
    assert damages(folder, manifest) == []


def test_what_both_ranks_hold_is_written_once(folder: Path) -> None:
    tensors = read_manifest(folder).tensors
    assert {name: len(tensor.parts) for name, tensor in tensors.items()} == {
        "model.matrix": 2,
        "model.vector": 1,
        "optimizer.step.matrix": 1,
        "random.cpu.0": 1,
        "random.cpu.1": 1,
    }
    written = {part.file for tensor in tensors.values() for part in tensor.parts}
    assert len(written) == 2  # neither rank has it all


def test_every_bit_of_every_file_counts(tmp_path: Path) -> None:
    small = [{"model.a": TensorSlice.unsplit(torch.arange(6.0).reshape(2, 3))}]
    folder = write(tmp_path, 1, small)
    manifest = read_manifest(folder)
    for path in files_of(folder):
        for byte, bit in product(range(path.stat().st_size), range(8)):
            flip(path, byte, bit)
            if path.name == MANIFEST:
                with pytest.raises(DamagedManifestError):
                    read_manifest(folder)
            else:
                (found,) = damages(folder, manifest)
                assert (found.file, found.tensor) == (
                    path.name,
                    tensor_at(manifest, path.name, byte),
                )
            flip(path, byte, bit)
    assert damages(folder, read_manifest(folder)) == []


def test_every_length_but_the_right_one_is_seen(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder)
    for path in files_of(folder):
        whole = path.read_bytes()
        for size in (*range(len(whole)), len(whole) + 1):
            path.write_bytes((whole + b"\0")[:size])
            if path.name == MANIFEST:
                with pytest.raises(DamagedManifestError, match="is not what was written"):
                    read_manifest(folder)
                continue
            found = damages(folder, manifest)
            assert {damage.file for damage in found} == {path.name}
            cut = {name for name, part in manifest.slices_of(path.name) if part.first_byte < size}
            told = {damage.tensor for damage in found} - {""}
            assert told
            if size < len(whole):
                later = {n for n, p in manifest.slices_of(path.name) if p.first_byte >= size}
                assert later <= told
                assert told - later <= cut
        path.write_bytes(whole)


@given(
    file=st.sampled_from([MANIFEST, "rank-0000.safetensors", "rank-0001.safetensors"]),
    place=st.floats(0, 1, exclude_max=True),
    garbage=st.binary(min_size=1, max_size=40),
)
@settings(max_examples=150)
def test_no_other_bytes_pass(file: str, place: float, garbage: bytes) -> None:
    with TemporaryDirectory() as name:
        folder = write(Path(name), 3, two_ranks())
        manifest = read_manifest(folder)
        before = (folder / file).read_bytes()
        first = int(place * len(before))
        after = before[:first] + garbage + before[first + len(garbage) :]
        (folder / file).write_bytes(after)
        if after == before:
            assert damages(folder, read_manifest(folder)) == []
        elif file == MANIFEST:
            with pytest.raises(DamagedManifestError):
                read_manifest(folder)
        else:
            assert {damage.file for damage in damages(folder, manifest)} == {file}


def test_missing_files_are_named(folder: Path) -> None:
    manifest = read_manifest(folder)
    (folder / "rank-0001.safetensors").unlink()
    (found,) = damages(folder, manifest)
    assert (found.file, found.what) == ("rank-0001.safetensors", "the file is missing")
    assert found.tensor in manifest.tensors
    (folder / MANIFEST).unlink()
    with pytest.raises(DamagedManifestError, match="is missing"):
        read_manifest(folder)


def framed(body: str) -> str:
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"sha256":"{digest}","checkpoint":{body}}}\n'


def body_of(folder: Path) -> str:
    text = (folder / MANIFEST).read_text()
    return text[text.index('"checkpoint":') + 13 : -2]


def test_another_format_is_refused(folder: Path) -> None:
    body = body_of(folder).replace('"format":2', '"format":3')
    with pytest.raises(DamagedManifestError, match="has format 3, this version reads 1 and 2"):
        Manifest.from_text(framed(body))


def test_a_manifest_of_format_1_is_read_with_its_sha256(folder: Path) -> None:
    document = json.loads(body_of(folder))
    for tensor in document["tensors"].values():
        for part in tensor["parts"]:
            with (folder / part["file"]).open("rb") as file:
                file.seek(part["first_byte"])
                part["sha256"] = hashlib.sha256(file.read(part["bytes"])).hexdigest()
            assert part.pop("digest").startswith("xxh3_128:")
    body = json.dumps(document | {"format": 1}, sort_keys=True, separators=(",", ":"))
    (folder / MANIFEST).write_text(framed(body))
    manifest = read_manifest(folder)
    parts = [part for tensor in manifest.tensors.values() for part in tensor.parts]
    assert {part.digest.partition(":")[0] for part in parts} == {"sha256"}
    assert damages(folder, manifest) == []
    assert Manifest.from_text(manifest.text()) == manifest
    flip(folder / parts[0].file, parts[0].first_byte, 3)
    assert [damage.what for damage in damages(folder, manifest)] == [
        "its bytes are not those that were written"
    ]


def boundaries(size: int) -> st.SearchStrategy[list[int]]:
    """Where a dimension is cut, with both ends."""
    inner = st.sets(st.integers(1, max(1, size - 1)), max_size=3)
    return inner.map(lambda found: sorted({0, size, *(c for c in found if c < size)}))


@st.composite
def grids(draw: st.DrawFn) -> tuple[Tensor, list[list[int]], list[list[int]]]:
    """A tensor, and two ways to cut it into boxes."""
    shape = draw(st.lists(st.integers(1, 7), min_size=0, max_size=3))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    tensor = torch.randint(0, 200, shape, generator=generator).to(dtype)
    ways = [[draw(boundaries(size)) for size in shape] for _ in range(2)]
    return tensor, ways[0], ways[1]


def boxes(tensor: Tensor, way: Sequence[Sequence[int]]) -> list[TensorSlice]:
    """The boxes of a grid, views of the tensor."""
    found = []
    for spans in product(*(list(pairwise(cut)) for cut in way)):
        view = tensor[tuple(slice(a, b) for a, b in spans)]
        found.append(TensorSlice(view, tuple(tensor.shape), tuple(a for a, _ in spans)))
    return found


@given(grids())
@settings(max_examples=80)
def test_any_cut_is_read_from_any_other(
    case: tuple[Tensor, list[list[int]], list[list[int]]],
) -> None:
    tensor, saved, wanted = case
    with TemporaryDirectory() as name:
        folder = write(Path(name), 1, [{"model.x": part} for part in boxes(tensor, saved)])
        found = FoundCheckpoint(folder, read_manifest(folder))
        assert damages(folder, found.manifest) == []
        for part in boxes(tensor, wanted):
            empty = TensorSlice(torch.empty_like(part.tensor), part.full_shape, part.offsets)
            load_slices(found, {"model.x": empty})
            assert torch.equal(empty.tensor, part.tensor)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # so it is: one process reads
def test_torch_reads_it_with_its_own_planner(folder: Path) -> None:
    matrix = two_ranks()[0]["model.matrix"].full_shape
    state = {"model.matrix": torch.zeros(matrix), "optimizer.step.matrix": torch.zeros(())}
    dcp.load(state, storage_reader=CheckpointReader(folder), no_dist=True)
    parts = [rank["model.matrix"].tensor for rank in two_ranks()]
    assert torch.equal(state["model.matrix"], torch.cat(parts))


@pytest.mark.parametrize("how", ["a gap", "an overlap"])
def test_parts_that_are_no_tensor_are_refused(how: str) -> None:
    first, second = halves(torch.zeros(4, 2))
    moved = {
        "a gap": TensorSlice(second.tensor[:1], (4, 2), (3, 0)),
        "an overlap": TensorSlice(second.tensor, (4, 2), (1, 0)),
    }[how]
    with pytest.raises(ValueError, match="key:x"):
        plan_saves([first.rows("x"), moved.rows("x")])


@pytest.mark.parametrize("broken", ["commit", "flush_to_disk", "write_slices"])
def test_what_is_not_committed_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A crash between any write and the new name leaves the checkpoint before."""
    older = write(tmp_path, 10, two_ranks(1))

    def crash(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"shardwright.executor.checkpoint.writer.{broken}", crash)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 20, two_ranks(2))
    assert step_folders(tmp_path) == [older]
    assert damages(older, read_manifest(older)) == []
    assert len(list(tmp_path.iterdir())) == 2
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [older]


def test_a_step_that_is_there_makes_way(tmp_path: Path) -> None:
    write(tmp_path, 10, two_ranks(1))
    folder = write(tmp_path, 10, two_ranks(2), token="again")
    target = TensorSlice.unsplit(torch.empty(()))
    load_slices(FoundCheckpoint(folder, read_manifest(folder)), {"optimizer.step.matrix": target})
    assert target.tensor == 2
    assert list(tmp_path.iterdir()) == [folder]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30, 90):
        write(tmp_path, step, two_ranks())
    prune(tmp_path, newest=30, keep=2, protected=tmp_path / "step-00000010")
    assert len(step_folders(tmp_path)) == 4
    prune(tmp_path, newest=30, keep=2)
    assert [path.name for path in step_folders(tmp_path)] == [
        f"step-{step:08d}" for step in (90, 30, 20)
    ]
    assert len(list(tmp_path.iterdir())) == 3


def test_folders_of_others_are_none_of_ours(tmp_path: Path) -> None:
    for name in ("step-1", "step-000000x1", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000001").touch()
    assert step_folders(tmp_path) == []
    assert step_folders(tmp_path / "absent") == []
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_only_tensors_are_kept(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path / "a", tmp_path / "b", RUN, 1)
    plans, _ = plan_saves([TensorSlice.unsplit(torch.zeros(1)).rows("x")])
    planner = SliceSavePlanner()
    planner.resolve_data = lambda item: object()  # type: ignore[method-assign,assignment,return-value]
    writer.set_up_storage_writer(is_coordinator=True)
    with pytest.raises(TypeError, match="x is no tensor"):
        writer.write_data(writer.prepare_global_plan(list(plans))[0], planner)
    shutil.rmtree(tmp_path / "a")
