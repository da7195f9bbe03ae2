"""Checkpoints that someone else made: refused in one line, and nothing else is read for them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import two_ranks, write

from shardwright.executor.checkpoint.loader import newest_valid
from shardwright.executor.checkpoint.manifest import MANIFEST, Manifest
from shardwright.executor.checkpoint.storage import regular_file
from shardwright.executor.checkpoint.storage.folders import step_folders
from shardwright.spec.errors import InputError, RunError

CPU = torch.device("cpu")
FILE, OTHER = "rank-0000.safetensors", "rank-0001.safetensors"
Document = dict[str, Any]
OPENED: list[str] = []


def audit(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(given[0], str):
        OPENED.append(given[0])


sys.addaudithook(audit)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def rewrite(folder: Path, text: str) -> None:
    """A manifest whose own digest is right, whatever is in it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    framed = f'{{"sha256":"{digest}","checkpoint":{text}}}\n'
    (folder / MANIFEST).write_text(framed)


def edited(change: Callable[[Document], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        document = json.loads((folder / MANIFEST).read_text())["checkpoint"]
        changed = change(document)
        rewrite(folder, json.dumps(document if changed is None else changed))

    return edit


def text(body: str) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, body)


def renamed(name: str) -> Callable[[Path], None]:
    def change(document: Document) -> None:
        document["files"][name] = document["files"].pop(FILE)
        for tensor in document["tensors"].values():
            for part in tensor["parts"]:
                part["file"] = name if part["file"] == FILE else part["file"]

    return edited(change)


def put(*path: str | int, value: Any) -> Callable[[Path], None]:
    """Set a value of the manifest."""

    def change(document: Document) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edited(change)


def drop(*path: str | int) -> Callable[[Path], None]:
    def change(document: Document) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return edited(change)


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def without_random(document: Document) -> None:
    """The state of rank 1 goes, and its file stays whole."""
    document["tensors"]["model.state"] = document["tensors"].pop("random.cpu.1")


def doubled(document: Document) -> None:
    parts = document["tensors"]["model.matrix"]["parts"]
    parts.append(parts[0])


MATRIX, FIRST = ("tensors", "model.matrix"), ("tensors", "model.matrix", "parts", 0)
DAMAGE: dict[str, Callable[[Path], object]] = {
    "traversal": renamed("../outside"),
    "traversal of a plain file": renamed("../step-00000010/rank-0000.safetensors"),
    "absolute": renamed("/etc/passwd"),
    "a folder below": renamed("below/rank-0000.safetensors"),
    "an empty name": renamed(""),
    "a name with a zero byte": renamed("rank-0000.safetensors\0"),
    "a name with a line end": renamed("rank-0000.safetensors\n"),
    "link to a device": replaced(FILE, lambda path: path.symlink_to("/dev/zero")),
    "link to a file": replaced(FILE, lambda path: path.symlink_to(path.with_name(OTHER))),
    "pipe": replaced(FILE, os.mkfifo),
    "folder": replaced(FILE, Path.mkdir),
    "manifest is a link to a device": replaced(MANIFEST, lambda p: p.symlink_to("/dev/zero")),
    "manifest is a pipe": replaced(MANIFEST, os.mkfifo),
    "manifest is a folder": replaced(MANIFEST, Path.mkdir),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "a list": text("[]"),
    "a number": text("3"),
    "null": text("null"),
    "empty": text("{}"),
    "deep": text("[" * 100_000 + "]" * 100_000),
    "deep in the model": put("run", "model_document", value=json.loads("[" * 400 + "]" * 400)),
    "NaN": put("run", "optimizer", value={"lr": float("nan")}),
    "infinite step": put("step", value=float("inf")),
    "negative step": put("step", value=-3),
    "step zero": put("step", value=0),
    "another step": put("step", value=7),
    "a step of text": put("step", value="20"),
    "a step of 400 digits": put("step", value=10**400),
    "true for a step": put("step", value=True),
    "no step": drop("step"),
    "no run": drop("run"),
    "no seed": drop("run", "seed"),
    "an unknown key": put("run", "more", value=1),
    "no optimizer": put("run", "optimizer", value=None),
    "tensors in a list": put("tensors", value=[]),
    "huge file": put("files", FILE, "bytes", value=2**62),
    "huge header": put("files", FILE, "header_bytes", value=2**62),
    "negative size": put("files", FILE, "bytes", value=-1),
    "huge shape": put(*MATRIX, "shape", value=[2**62, 2**62]),
    "negative shape": put(*MATRIX, "shape", value=[-5, 3]),
    "another shape": put(*MATRIX, "shape", value=[3, 5]),
    "a shape of text": put(*MATRIX, "shape", value="53"),
    "no type of torch's": put(*MATRIX, "dtype", value="load"),
    "another type": put(*MATRIX, "dtype", value="int32"),
    "wider type": put(*MATRIX, "dtype", value="float64"),
    "no slices": put(*MATRIX, "parts", value=[]),
    "overlap": put("tensors", "model.matrix", "parts", 1, "offsets", value=[2, 0]),
    "beyond": put("tensors", "model.matrix", "parts", 1, "offsets", value=[4, 0]),
    "gap": drop("tensors", "model.matrix", "parts", 1),
    "slice twice": edited(doubled),
    "negative offset": put(*FIRST, "offsets", value=[-1, 0]),
    "first byte in the header": put(*FIRST, "first_byte", value=0),
    "first byte beyond": put(*FIRST, "first_byte", value=2**40),
    "another key": put(*FIRST, "key", value="x"),
    "a file that is not listed": put(*FIRST, "file", value="rank-0009.safetensors"),
    "short digest": put(*FIRST, "digest", value="ab"),
    "unknown digest": put(*FIRST, "digest", value="crc32:" + 8 * "0"),
    "no digest": drop(*FIRST, "digest"),
    "no random state": edited(without_random),
    "a key twice": text('{"format":1,"format":1}'),
    "data cut": cut(FILE, 200),
    "data empty": cut(FILE, 0),
    "manifest cut": cut(MANIFEST, 100),
    "manifest empty": cut(MANIFEST, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_malformed_checkpoint_is_passed_over(name: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (tmp_path / "root" / "..").resolve().joinpath("outside").write_text("secret")
    good, bad = (write(root, step, two_ranks()) for step in (10, 20))
    DAMAGE[name](bad)
    said: list[str] = []
    OPENED.clear()
    assert newest_valid(root, 0, CPU, said.append).folder == good
    assert {str(Path(path).parent) for path in OPENED} <= {str(good), str(bad)}
    assert not [path for path in OPENED if Path(path).is_symlink()]
    (line,) = said
    assert line.startswith("checkpoint step-00000020 is damaged (")
    assert line.isprintable()
    assert len(line) < 1500
    with pytest.raises(RunError, match=r"^no good checkpoint in .* is damaged \(") as info:
        newest_valid(bad, 0, CPU, said.append)
    assert str(info.value).isprintable()


def test_what_another_user_owns_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, theirs = (write(tmp_path, step, two_ranks()) for step in (10, 20))
    opens = regular_file.os.open

    def closed(path: Path, flags: int) -> int:
        if Path(path).parent == theirs:
            raise PermissionError(13, "Permission denied")
        return opens(path, flags)

    monkeypatch.setattr(regular_file.os, "open", closed)
    said: list[str] = []
    assert newest_valid(tmp_path, 0, CPU, said.append).folder == good
    assert said[0].startswith("checkpoint step-00000020 is not readable (manifest.json")
    with pytest.raises(RunError, match="step-00000020, is not readable"):
        newest_valid(theirs, 0, CPU, said.append)

    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match="a folder that this user may read"):
        step_folders(tmp_path)


def test_a_manifest_is_as_open_as_the_data(tmp_path: Path) -> None:
    folder = write(tmp_path, 10, two_ranks())
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    text = (folder / MANIFEST).read_text()
    assert Manifest.from_text(text).text() == text
