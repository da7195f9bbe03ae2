"""A far storage of the tests: ``held://BYTES_PER_S/path``, shared by all ranks, without a rename.

A folder of this machine through fsspec, whose reads and writes take turns and each take as long as
its bytes at the rate. Every request is a line of ``LOG`` in the folder's parent: kind and bytes.
"""

from __future__ import annotations

import fcntl
import io
import os
import time
from pathlib import Path
from typing import Any

import fsspec
import torch
import torch.distributed as dist
from fsspec.implementations.local import LocalFileSystem

from shardwright.executor.checkpoint.loader import FoundCheckpoint, load_slices
from shardwright.executor.checkpoint.manifest import Manifest, read_manifest
from shardwright.executor.checkpoint.shared_reading import SharedReading
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.checkpoint.storage.paths import checkpoint_path
from shardwright.executor.checkpoint.tensor_slices import TensorSlice, dtype_of
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.train.job import train as train_job
from shardwright.profiler.timing.checkpoint_timing import measure_checkpoint

SCHEME, LOG = "held", "requests.log"


class HeldFileSystem(LocalFileSystem):
    """Local files at a rate."""

    protocol = SCHEME

    def __init__(self, rate: float = 1e9, **more: Any) -> None:
        super().__init__(**more)
        self.rate = rate

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        text = str(path)
        if text.startswith(f"{SCHEME}://"):
            text = "/" + text.removeprefix(f"{SCHEME}://").partition("/")[2]
        return super()._strip_protocol(text)  # type: ignore[no-any-return]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"rate": float(path.removeprefix(f"{SCHEME}://").partition("/")[0])}

    def hold(self, kind: str, path: str, size: int) -> None:
        """Wait for one's turn, and as long as so many bytes take."""
        folder = next(p for p in Path(path).parents if (p / LOG).exists())
        with (folder / LOG).open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            time.sleep(size / self.rate)
            log.write(f"{kind} {size} {Path(path).name}\n")

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        """A range of a file."""
        data: bytes = super().cat_file(path, start=start, end=end, **more)
        self.hold("read", self._strip_protocol(path), len(data))
        return data

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        """A whole file."""
        self.hold("write", self._strip_protocol(path), len(value))
        Path(self._strip_protocol(path)).write_bytes(value)

    def open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
        """A file to write, or one to read, whose ranges :meth:`cat_file` counts."""
        if mode == "rb":
            return super().open(path, mode)
        return _HeldFile(self, self._strip_protocol(path))

    def mv(self, *_: Any, **__: Any) -> None:
        """There is no rename."""
        raise NotImplementedError


class _HeldFile(io.RawIOBase):
    def __init__(self, system: HeldFileSystem, path: str) -> None:
        self._system, self._path = system, path
        self._file = Path(path).open("wb")  # noqa: SIM115 - closed with this one

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._system.hold("write", self._path, size)
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


fsspec.register_implementation(SCHEME, HeldFileSystem, clobber=True)


def held_url(folder: Path, rate: float, name: str = "run") -> str:
    """URL of a storage in a folder, held to a rate."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).touch()
    return f"{SCHEME}://{rate:.0f}{folder}/{name}"


def requested(folder: Path, kind: str) -> dict[str, int]:
    """Bytes of all requests of a kind, by name of the file."""
    found: dict[str, int] = {}
    for line in (folder / LOG).read_text().splitlines():
        what, size, name = line.split()
        if what == kind:
            found[name] = found.get(name, 0) + int(size)
    return found


def train(context: RankContext, payload: dict[str, Any]) -> dict[str, Any] | None:
    """Job: the train job where such URLs are known."""
    return train_job(context, payload)


def measure(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: the rates of a folder."""
    os.makedirs(FarPath(payload["folder"])._path, exist_ok=True)
    return measure_checkpoint(context, payload)


def _whole(manifest: Manifest) -> list[tuple[str, TensorSlice]]:
    return [
        (name, TensorSlice.unsplit(torch.empty(tensor.shape, dtype=dtype_of(tensor.dtype))))
        for name, tensor in manifest.tensors.items()
    ]


def load(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: every rank takes every tensor of ``folder``, ``alone`` or shared; seconds, digest."""
    folder = checkpoint_path(payload["folder"])
    manifest = read_manifest(folder)
    wanted = _whole(manifest)
    dist.barrier()
    start_s = time.perf_counter()
    if payload["alone"]:
        load_slices(FoundCheckpoint(folder, manifest), dict(wanted))
    else:
        assert SharedReading(folder, manifest, wanted, context.device).load() == []
    dist.barrier()
    spent_s = time.perf_counter() - start_s
    sums = [float(part.tensor.double().sum()) for _, part in wanted if part.tensor.numel()]
    return {"seconds": spent_s, "sum": sum(sums)}
