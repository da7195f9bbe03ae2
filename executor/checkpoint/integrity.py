"""Verification of a checkpoint's files against the digests of its manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...spec.errors import InputError
from ...spec.files import open_file
from ..launch.progress import PROGRESS
from .manifest import MANIFEST, DamagedManifestError, Manifest, StoredFile, StoredSlice

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of a file; ``tensor`` is empty outside any tensor."""

    file: str
    tensor: str
    what: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.file}, {self.tensor or 'its header'}: {self.what}"


def damages(folder: Path, manifest: Manifest, files: Sequence[str] | None = None) -> list[Damage]:
    """All differences between a checkpoint's files and its manifest.

    ``files``: those to verify; None for all.
    """
    return [
        damage
        for name in (manifest.files if files is None else files)
        for damage in _file_damages(folder / name, manifest.files[name], manifest.slices_of(name))
    ]


def manifest_damage(error: DamagedManifestError) -> Damage:
    """Damage of a manifest that cannot be used."""
    return Damage(MANIFEST, "the list of all tensors", str(error))


def _file_damages(
    path: Path, stored: StoredFile, parts: list[tuple[str, StoredSlice]]
) -> Iterator[Damage]:
    try:
        with open_file(path, "a checkpoint's file") as file:
            yield from _open_file_damages(file, path.name, stored, parts)
    except InputError as error:
        is_missing = not path.exists()
        what = "the file is missing" if is_missing else f"the file cannot be read: {error.given}"
        yield Damage(path.name, parts[0][0], what)
    except OSError as error:
        yield Damage(path.name, parts[0][0], f"the file cannot be read: {error.strerror}")


def _open_file_damages(
    file: BinaryIO, name: str, stored: StoredFile, parts: list[tuple[str, StoredSlice]]
) -> Iterator[Damage]:
    size = os.fstat(file.fileno()).st_size
    if size > stored.bytes:
        yield Damage(name, parts[-1][0], f"{size - stored.bytes} bytes follow its end")
    if _digest(file, 0, stored.header_bytes) != stored.header_sha256:
        yield Damage(name, "", "its bytes are not those that were written")
    for tensor, stored_slice in parts:
        if stored_slice.first_byte + stored_slice.bytes > size:
            yield Damage(name, tensor, f"the file ends at byte {size} of {stored.bytes}")
        elif _digest(file, stored_slice.first_byte, stored_slice.bytes) != stored_slice.sha256:
            yield Damage(name, tensor, "its bytes are not those that were written")


def _digest(file: BinaryIO, first: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(first)
    while size and (piece := file.read(min(size, READ_BYTES))):
        digest.update(piece)
        size -= len(piece)
        PROGRESS.tick()
    return digest.hexdigest()
