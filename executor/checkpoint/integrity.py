"""Verification of a checkpoint's files against the digests of its manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ..launch.progress import PROGRESS
from .foreign.safetensors_files import DTYPES, LENGTH_BYTES
from .manifest import (
    DamagedManifestError,
    Manifest,
    StoredFile,
    StoredSlice,
    UnreadableManifestError,
)
from .manifest_layout import missing_random_state
from .storage.digests import EARLIER, Digest
from .storage.folders import MANIFEST
from .storage.paths import CheckpointPath
from .storage.regular_file import NotRegularFileError, open_regular

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of a file; ``tensor`` is empty outside any tensor.

    ``is_readable``: False if only the permission to read is lacking.
    """

    file: str
    tensor: str
    what: str
    is_readable: bool = True

    @property
    def verdict(self) -> str:
        """``damaged``, or what it may be instead."""
        return "damaged" if self.is_readable else "not readable"

    def __str__(self) -> str:
        """One line."""
        return f"{self.file}, {self.tensor or 'its header'}: {self.what}"


def damages(
    folder: CheckpointPath, manifest: Manifest, files: Sequence[str] | None = None
) -> list[Damage]:
    """All differences between a checkpoint's files and its manifest.

    ``files``: those to verify; None for all.
    """
    return [
        damage
        for name in (manifest.files if files is None else files)
        for damage in _file_damages(
            folder / name, manifest, manifest.files[name], manifest.slices_of(name)
        )
    ]


def manifest_damage(error: DamagedManifestError) -> Damage:
    """Damage of a manifest that cannot be used."""
    is_readable = not isinstance(error, UnreadableManifestError)
    return Damage(MANIFEST, "the list of all tensors", str(error), is_readable)


def random_state_damage(manifest: Manifest) -> list[Damage]:
    """The random state of a rank that a run could not go on without."""
    name = missing_random_state(manifest)
    return [] if name is None else [Damage(MANIFEST, name, "the state is missing")]


def _file_damages(
    path: CheckpointPath,
    manifest: Manifest,
    stored: StoredFile,
    parts: list[tuple[str, StoredSlice]],
) -> Iterator[Damage]:
    dtypes = {name: manifest.tensors[name].dtype for name, _ in parts}
    try:
        with open_regular(path) as file:
            yield from _open_file_damages(file, path.name, stored, parts, dtypes)
    except (OSError, NotRegularFileError) as error:
        yield Damage(path.name, parts[0][0], *reading_fault(error))


def _open_file_damages(
    file: BinaryIO,
    name: str,
    stored: StoredFile,
    parts: list[tuple[str, StoredSlice]],
    dtypes: Mapping[str, str],
) -> Iterator[Damage]:
    size = file.seek(0, os.SEEK_END)
    yield from _frame_damages(file, name, stored, parts, dtypes)
    for tensor, stored_slice in parts:
        if stored_slice.first_byte + stored_slice.bytes > size:
            yield Damage(name, tensor, size_damage(size, stored))
        elif not _is_written(
            file, stored_slice.first_byte, stored_slice.bytes, stored_slice.digest
        ):
            yield Damage(name, tensor, "its bytes are not those that were written")


def header_damages(folder: CheckpointPath, manifest: Manifest, name: str) -> list[Damage]:
    """Damage of a file around its tensors; none where it cannot be read, which those tell."""
    parts = manifest.slices_of(name)
    dtypes = {tensor: manifest.tensors[tensor].dtype for tensor, _ in parts}
    try:
        with open_regular(folder / name) as file:
            return [*_frame_damages(file, name, manifest.files[name], parts, dtypes)]
    except (OSError, NotRegularFileError):
        return []


def reading_fault(error: OSError | NotRegularFileError) -> tuple[str, bool]:
    """``what`` and ``is_readable`` of the damage of a file that could not be read."""
    if isinstance(error, FileNotFoundError):
        return "the file is missing", True
    if isinstance(error, NotRegularFileError):
        return str(error), True
    what = f"the file cannot be read: {error.strerror or error}"
    return what, not isinstance(error, PermissionError)


def size_damage(size: int, stored: StoredFile) -> str:
    """What is wrong with a file that ends before a tensor does."""
    return f"the file ends at byte {size} of {stored.bytes}"


def _frame_damages(
    file: BinaryIO,
    name: str,
    stored: StoredFile,
    parts: list[tuple[str, StoredSlice]],
    dtypes: Mapping[str, str],
) -> Iterator[Damage]:
    """Damage of a file's header, and bytes after its end."""
    size = file.seek(0, os.SEEK_END)
    if size > stored.bytes:
        yield Damage(name, parts[-1][0], f"{size - stored.bytes} bytes follow its end")
    header_digest = f"{EARLIER}:{stored.header_sha256}"
    if not _is_written(file, 0, stored.header_bytes, header_digest):
        yield Damage(name, "", "its bytes are not those that were written")
    elif not _is_header_of(file, stored, parts, dtypes):
        yield Damage(name, "", "it holds other tensors than the manifest says")


def _is_header_of(
    file: BinaryIO,
    stored: StoredFile,
    parts: list[tuple[str, StoredSlice]],
    dtypes: Mapping[str, str],
) -> bool:
    """True if a file's own header puts every slice where the manifest has it."""
    file.seek(0)
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if length + LENGTH_BYTES != stored.header_bytes:
        return False
    begin = stored.header_bytes
    try:
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        found = {
            key: (row["shape"], row["data_offsets"], DTYPES[row["dtype"]])
            for key, row in header.items()
        }
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False
    return found == {
        part.key: (
            [*part.sizes],
            [part.first_byte - begin, part.first_byte - begin + part.bytes],
            dtypes[tensor],
        )
        for tensor, part in parts
    }


def _is_written(file: BinaryIO, first: int, size: int, expected: str) -> bool:
    digest = Digest(expected)
    file.seek(first)
    while size and (piece := file.read(min(size, READ_BYTES))):
        digest.update(piece)
        size -= len(piece)
        PROGRESS.tick()
    return digest.text() == expected
