"""Manifest of a checkpoint: its run, its tensors, digests of every byte.

It is written last, so a folder with one is complete. Digests are SHA-256: in the standard library,
and sure to detect any damage, where a CRC covers short bursts only. They are computed on the writer
thread, beside the run. A manifest has exactly one text, so any changed byte of it shows too.
"""

from __future__ import annotations

import hashlib
import json
import os
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

from ...spec.errors import InputError
from ...spec.files import MAX_MANIFEST_BYTES, read_bytes
from ...spec.finite_numbers import FINITE_ONLY
from .tensor_slices import dtype_of

MANIFEST = "manifest.json"
FORMAT = 1
_HEAD, _MIDDLE, _TAIL = '{"sha256":"', '","checkpoint":', "}\n"


class DamagedManifestError(ValueError):
    """A manifest other than the one written."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice in a file: tensor offsets, file bytes, digest."""

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
    """A data file; its digested header locates the tensors."""

    bytes: int
    header_bytes: int
    header_sha256: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run behind a checkpoint.

    ``text``: digest of the training text; ``plan`` and ``model``: hashes; ``versions``: of the
    software; ``model_document``: the model, None in manifests of earlier versions. The next step
    reads on at sample ``step · global_batch``.
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
    model_document: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a checkpoint after ``step`` optimizer steps."""

    step: int
    run: RunFacts
    files: Mapping[str, StoredFile]
    tensors: Mapping[str, StoredTensor]

    def text(self) -> str:
        """The canonical text of this manifest."""
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
        try:
            document = json.loads(body, **FINITE_ONLY)
        except ValueError:
            raise DamagedManifestError("is not what was written") from None
        if document["format"] != FORMAT:
            raise DamagedManifestError(f"has format {document['format']}, this version reads 1")
        return _from_document(document)

    def metadata(self) -> Metadata:
        """Tensors as torch's distributed checkpoint metadata."""
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
        """Slices in a file with tensor names, in byte order."""
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
        if not os.path.lexists(folder / MANIFEST):
            raise DamagedManifestError("is missing")
        data = read_bytes(folder / MANIFEST, "a checkpoint's manifest", MAX_MANIFEST_BYTES)
        return Manifest.from_text(data.decode())
    except InputError as error:
        raise DamagedManifestError(f"cannot be read: {error.given}") from None
    except UnicodeDecodeError:
        raise DamagedManifestError("is not what was written") from None
