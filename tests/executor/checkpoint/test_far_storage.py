"""Checkpoints by URL: saved, resumed, replaced, pruned; requests that fail; libraries that lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import two_ranks, write
from ranks.checkpoint_matrix import Cell

from shardwright.executor.checkpoint import writer
from shardwright.executor.checkpoint.integrity import damages
from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.checkpoint.settings import CheckpointSettings
from shardwright.executor.checkpoint.storage import far_path
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.checkpoint.storage.folders import MANIFEST, prune, step_folders, sweep
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.train.job import train
from shardwright.spec.errors import InputError

PLAN = Cell("dp", 1).plan()
Train = Callable[..., dict[str, Any]]


@pytest.fixture
def url() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://runs/one"
    if system.exists("/runs"):
        system.rm("/runs", recursive=True)


@pytest.fixture
def go() -> Iterator[Train]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def run(steps: int, **asked: Any) -> dict[str, Any]:
        context = RankContext(0, 1, torch.device("cpu"), 60.0, lambda _: None)
        settings = {"steps": steps, "random_tokens": True, "follow_bytes": False}
        result = train(context, {**settings, "checkpoint": asked, "plan": PLAN.to_document()})
        assert result is not None
        return result

    yield run
    dist.destroy_process_group()


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_a_run_goes_on_from_a_url(go: Train, scheme: str, url: str, tmp_path: Path) -> None:
    root = url if scheme == "memory" else f"file://{tmp_path}/run"
    whole = go(4, folder=root, every=1, keep=2)
    assert [path.name[-1] for path in step_folders(FarPath(root))] == ["4", "3"]
    again = go(4, resume=f"{root}/step-00000003")
    assert again["measured"]["losses"] == whole["measured"]["losses"][3:]
    assert "losses_file" not in whole
    found = go(5, folder=root, resume=root)
    assert found["checkpoint"]["resumed"]["folder"] == f"{root}/step-00000004"


def test_a_manifest_is_the_commit(url: str) -> None:
    root = FarPath(url)
    first, second = (write(root, step, two_ranks(seed=step)) for step in (1, 2))  # type: ignore[type-var]
    (second / MANIFEST).unlink()
    assert step_folders(root) == [first]
    sweep(root)
    assert [path.name for path in root.iterdir()] == [first.name]
    assert damages(first, read_manifest(first)) == []


def test_large_ranks_write_several_files(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FAR_FILE_BYTES", 20)
    folder = write(FarPath(url), 3, two_ranks(seed=3))  # type: ignore[type-var]
    manifest = read_manifest(folder)
    assert len(manifest.files) > 2
    assert damages(folder, manifest) == []


def test_old_ones_are_dropped(url: str) -> None:
    root = FarPath(url)
    for step in (1, 2, 3):
        write(root, step, two_ranks(seed=step))  # type: ignore[type-var]
    prune(root, newest=3, keep=1, protected=root / "step-00000001")
    assert [path.name[-1] for path in step_folders(root)] == ["3", "1"]


@pytest.mark.parametrize("failures", [2, 9])
def test_requests_are_tried_again(url: str, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_path, "FIRST_WAIT_S", 0.0)
    system, asked = fsspec.filesystem("memory"), []
    whole = type(system).pipe_file

    def flaky(self: Any, path: str, value: bytes, **more: Any) -> None:
        asked.append(path)
        if len(asked) <= failures:
            raise ConnectionError("reset by\npeer")
        whole(self, path, value, **more)

    monkeypatch.setattr(type(system), "pipe_file", flaky)
    if failures < far_path.TRIES:
        (FarPath(url) / "x").write_bytes(b"1")
        assert (FarPath(url) / "x").read_bytes() == b"1"
        return
    with pytest.raises(OSError, match=r"^memory://runs/one/x, 4 times: reset by peer$"):
        (FarPath(url) / "x").write_bytes(b"1")


@pytest.mark.parametrize("given", ["s3://bucket/run", "nothing://run"])
def test_what_no_library_serves_is_one_line(given: str) -> None:
    settings = CheckpointSettings(folder=given)
    with pytest.raises(InputError) as refused:
        _ = settings.source
    assert "\n" not in str(refused.value)
    assert given.partition("/")[0] in str(refused.value)
