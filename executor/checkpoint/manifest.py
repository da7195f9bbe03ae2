"""Manifest of a checkpoint: its run, its tensors, and a digest of every byte.

The manifest is written last, so a folder with one is complete. Digests are SHA-256, which the
standard library has and which detects any damage, where a cyclic sum is sure only of short ones;
it is computed beside the run, on the thread that writes. A manifest has exactly one text, so any
change of a byte of it shows too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from .tensor_slices import dtype_of

MANIFEST = "manifest.json"
FORMAT = 1
_HEAD, _MIDDLE, _TAIL = '{"sha256":"', '","checkpoint":', "}\n"


class DamagedManifestError(ValueError):
    """A manifest is not what was written, or not one at all."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice in a file: its offsets in the tensor, its bytes in the file, their digest."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    key: str
    first_byte: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and its slices."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[StoredSlice, ...]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file; its header says where tensors are, and has a digest of its own."""

    bytes: int
    header_bytes: int
    header_sha256: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run that a checkpoint is of.

    ``text`` is the digest of the text that it reads; ``plan`` and ``model`` are hashes;
    ``versions`` are those of the software. The next step reads on at sample ``step ·
    global_batch``.
    """

    plan: str
    model: str
    seed: int
    text: str
    global_batch: int
    seq_len: int
    ranks: int
    optimizer: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a checkpoint after ``step`` optimizer steps."""

    step: int
    run: RunFacts
    files: Mapping[str, StoredFile]
    tensors: Mapping[str, StoredTensor]

    def text(self) -> str:
        """The only text of this manifest."""
        body = _canonical({"format": FORMAT, **asdict(self)})
        return f"{_HEAD}{_digest(body)}{_MIDDLE}{body}{_TAIL}"

    @classmethod
    def from_text(cls, text: str) -> Manifest:
        """Inverse of :meth:`text`.

        Raises:
            DamagedManifestError: not what was written, or of another version.
        """
        digest_end = len(_HEAD) + 64
        digest, body = text[len(_HEAD) : digest_end], text[digest_end + len(_MIDDLE) : -len(_TAIL)]
        frame = (
            text[: len(_HEAD)],
            text[digest_end : digest_end + len(_MIDDLE)],
            text[-len(_TAIL) :],
        )
        if frame != (_HEAD, _MIDDLE, _TAIL) or _digest(body) != digest:
            raise DamagedManifestError("is not what was written")
        document = json.loads(body)
        if document["format"] != FORMAT:
            raise DamagedManifestError(f"has format {document['format']}, this version reads 1")
        return _from_document(document)

    def metadata(self) -> Metadata:
        """The tensors in the form of torch's distributed checkpoint."""
        tensors: dict[str, Any] = {}
        stored: dict[MetadataIndex, StoredSlice] = {}
        for name, tensor in self.tensors.items():
            tensors[name] = TensorStorageMetadata(
                TensorProperties(dtype=dtype_of(tensor.dtype)),
                torch.Size(tensor.shape),
                [
                    ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.sizes))
                    for part in tensor.parts
                ],
            )
            for part in tensor.parts:
                stored[MetadataIndex(name, torch.Size(part.offsets))] = part
        return Metadata(state_dict_metadata=tensors, storage_data=stored)

    def slices_of(self, file: str) -> list[tuple[str, StoredSlice]]:
        """Slices in a file with the names of their tensors, in the order of their bytes."""
        slices = [
            (name, part)
            for name, tensor in self.tensors.items()
            for part in tensor.parts
            if part.file == file
        ]
        return sorted(slices, key=lambda item: item[1].first_byte)


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _from_document(document: dict[str, Any]) -> Manifest:
    return Manifest(
        step=document["step"],
        run=RunFacts(**document["run"]),
        files={name: StoredFile(**row) for name, row in document["files"].items()},
        tensors={
            name: StoredTensor(row["dtype"], tuple(row["shape"]), _slices(row["parts"]))
            for name, row in document["tensors"].items()
        },
    )


def _slices(rows: Iterable[Mapping[str, Any]]) -> tuple[StoredSlice, ...]:
    return tuple(stored_slice(row) for row in rows)


def stored_slice(row: Mapping[str, Any]) -> StoredSlice:
    """A slice from its JSON form."""
    bounds = {"offsets": tuple(row["offsets"]), "sizes": tuple(row["sizes"])}
    return StoredSlice(**{**row, **bounds})


def read_manifest(folder: Path) -> Manifest:
    """Manifest of a checkpoint's folder.

    Raises:
        DamagedManifestError: missing, unreadable, or not what was written.
    """
    try:
        return Manifest.from_text((folder / MANIFEST).read_bytes().decode())
    except FileNotFoundError:
        raise DamagedManifestError("is missing") from None
    except OSError as error:
        raise DamagedManifestError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DamagedManifestError("is not what was written") from None
