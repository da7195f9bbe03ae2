"""A transformers checkpoint, written by layer and committed whole.

At most one file's worth of tensors is in memory. Files go to a temporary folder beside the target,
are flushed and then renamed, so the target is always complete.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...spec.codec import dump_pretty
from ...spec.errors import RunError
from ...spec.files import flush_to_disk
from ...spec.units import GIB
from .target import check_target

SHARD_BYTES = 2 * GIB
"""A file's weights; a larger tensor has a file of its own."""
FLOAT_BYTES = 4
METADATA = {"format": "pt"}


def split_files(shapes: Mapping[str, tuple[int, ...]], limit_bytes: int) -> list[list[str]]:
    """Tensor names by file, in order, within the limit if possible."""
    files: list[list[str]] = [[]]
    held_bytes = 0
    for name, shape in shapes.items():
        size_bytes = FLOAT_BYTES * int(torch.Size(shape).numel())
        if files[-1] and held_bytes + size_bytes > limit_bytes:
            files.append([])
            held_bytes = 0
        files[-1].append(name)
        held_bytes += size_bytes
    return files


class FolderWriter:
    """Writes weights into a folder that appears only when complete.

    Args:
        shapes: every tensor to come, in order.
        stem: prefix of file names.
        shard_bytes: size limit of a file.
    """

    def __init__(
        self,
        target: Path,
        shapes: Mapping[str, tuple[int, ...]],
        stem: str = "model",
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        check_target(target, "--save-hf")
        self.target, self._stem = target, stem
        self._files = split_files(shapes, shard_bytes)
        self._total_bytes = sum(FLOAT_BYTES * int(torch.Size(s).numel()) for s in shapes.values())
        self._held: dict[str, Tensor] = {}
        self._weight_map: dict[str, str] = {}
        self._written = 0
        self._folder = target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}"
        try:
            self._folder.mkdir()
        except OSError as error:
            raise _failed(target, error) from None

    def add(self, name: str, tensor: Tensor) -> None:
        """Add the next tensor, in float32; complete files are written.

        Raises:
            RunError: the disk is full, or not to be written.
        """
        self._held[name] = tensor.to("cpu", torch.float32).contiguous()
        if len(self._held) == len(self._files[self._written]):
            self._write_file()

    def _write_file(self) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        names, count = self._files[self._written], len(self._files)
        file = f"{self._stem}.safetensors"
        if count > 1:
            file = f"{self._stem}-{self._written + 1:05}-of-{count:05}.safetensors"
        try:
            save_file({name: self._held.pop(name) for name in names}, self._folder / file, METADATA)
            flush_to_disk(self._folder / file)
        except (OSError, SafetensorError) as error:
            self.abandon()
            raise _failed(self.target, error) from None
        self._weight_map |= dict.fromkeys(names, file)
        self._written += 1

    def finish(
        self, documents: Mapping[str, Mapping[str, Any] | str], copied: Mapping[str, Path]
    ) -> None:
        """Write the files beside the weights, and put the folder in place.

        ``documents`` are JSON or its text by file name, ``copied`` files to copy.

        Raises:
            RunError: the disk is full, or not to be written.
        """
        if self._written != len(self._files):
            raise RuntimeError("tensors are missing")
        files: dict[str, Mapping[str, Any] | str] = {**documents}
        if self._written > 1:
            index = {"metadata": {"total_size": self._total_bytes}, "weight_map": self._weight_map}
            files[f"{self._stem}.safetensors.index.json"] = index
        try:
            for name, document in files.items():
                text = document if isinstance(document, str) else dump_pretty(document)
                (self._folder / name).write_text(text, encoding="utf-8")
                flush_to_disk(self._folder / name)
            for name, path in copied.items():
                shutil.copyfile(path, self._folder / name)
                flush_to_disk(self._folder / name)
            self._make_readable()
            flush_to_disk(self._folder)
            self._folder.replace(self.target)
            flush_to_disk(self.target.parent)
        except OSError as error:
            self.abandon()
            raise _failed(self.target, error) from None

    def _make_readable(self) -> None:
        mode = next(self._folder.glob("*.json")).stat().st_mode
        for path in self._folder.glob("*.safetensors"):
            path.chmod(mode)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._held.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _failed(target: Path, error: Exception) -> RunError:
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return RunError(f"--save-hf {target} could not be written: {reason}")
