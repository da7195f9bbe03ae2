"""Manifest of a checkpoint: its run, its tensors, digests of every byte.

It is written last, so a folder with one is complete. Digests of tensors are those of
``storage.digests``, computed on the writer thread, beside the run; headers and the manifest itself,
which are short, have SHA-256. A manifest has exactly one text, so any changed byte of it shows too.
Format 1 had SHA-256 of tensors as well, and is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from ...spec.codec import from_document, from_json, parse_json
from ...spec.errors import InputError
from ...spec.files import MAX_MANIFEST_BYTES
from .storage.digests import EARLIER, DigestText
from .storage.folders import MANIFEST, step_of
from .storage.paths import CheckpointPath
from .storage.regular_file import NotRegularFileError, open_regular
from .tensor_slices import dtype_of

FORMAT, EARLIER_FORMAT = 2, 1
Count = Annotated[int, Field(ge=0, lt=2**63)]
Bounds = Annotated[tuple[Count, ...], Field(max_length=64)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^rank-[0-9]{4,10}\.safetensors$")]
"""A plain name: a manifest leads to no file outside its folder."""
_HEAD, _MIDDLE, _TAIL = '{"sha256":"', '","checkpoint":', "}\n"


class DamagedManifestError(ValueError):
    """A manifest other than the one written."""


class UnreadableManifestError(DamagedManifestError):
    """A manifest that this user may not read."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice in a file: tensor offsets, file bytes, digest."""

    offsets: Bounds
    sizes: Bounds
    file: FileName
    key: str
    first_byte: Count
    bytes: Count
    digest: DigestText


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and its slices."""

    dtype: str
    shape: Bounds
    parts: Annotated[tuple[StoredSlice, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file; its digested header locates the tensors."""

    bytes: Count
    header_bytes: Annotated[int, Field(ge=8, le=100_000_008)]  # safetensors' own limit
    header_sha256: Sha256


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run behind a checkpoint.

    ``text``: digest of the training text; ``plan`` and ``model``: hashes; ``versions``: of the
    software; ``model_document`` and ``workload``: None in manifests of earlier versions. The next
    step reads on at sample ``step · global_batch``. ``previous``: folder, step and kind or plan of
    the checkpoint that a new stage, or a run from another framework, began with.
    """

    plan: str
    model: str
    seed: int
    text: str
    global_batch: Count
    seq_len: Count
    ranks: Annotated[int, Field(ge=1, le=2**20)]
    optimizer: Mapping[str, Any]
    versions: Mapping[str, str]
    model_document: Mapping[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    previous: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a checkpoint after ``step`` optimizer steps."""

    step: Annotated[int, Field(ge=1, lt=2**63)]
    run: RunFacts
    files: Mapping[FileName, StoredFile]
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
            body = _migrated(body)
            document = from_json(_Document, body, MANIFEST, limit_bytes=MAX_MANIFEST_BYTES)
        except InputError as error:
            raise DamagedManifestError(f"is no manifest: {error}") from None
        if document.format != FORMAT:
            raise DamagedManifestError(f"has format {document.format}, this version reads 1 and 2")
        return cls(**{name: getattr(document, name) for name in cls.__slots__})

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


@dataclass(frozen=True, slots=True)
class _Document(Manifest):
    """A manifest with the number of its format."""

    format: int


def _migrated(body: str) -> str:
    """A manifest's body in this version's format, if it has the one before.

    Raises:
        InputError: no JSON.
    """
    if f'"format":{EARLIER_FORMAT},' not in body:
        return body
    document = parse_json(body, MANIFEST, MAX_MANIFEST_BYTES)
    if not isinstance(document, dict) or document.get("format") != EARLIER_FORMAT:
        return body
    for tensor in _values(document.get("tensors")):
        parts = tensor.get("parts") if isinstance(tensor, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and "sha256" in part:
                part["digest"] = f"{EARLIER}:{part.pop('sha256')}"
    return _canonical({**document, "format": FORMAT})


def _values(rows: Any) -> Iterator[Any]:
    yield from rows.values() if isinstance(rows, dict) else ()


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def stored_slice(row: Mapping[str, Any]) -> StoredSlice:
    """A slice from its JSON form."""
    return from_document(StoredSlice, row, "index of a rank")


def read_manifest(folder: CheckpointPath) -> Manifest:
    """Manifest of a checkpoint's folder, whose slices may be trusted to be whole tensors.

    Raises:
        DamagedManifestError: missing, unreadable, or not what was written.
    """
    from .manifest_layout import first_fault

    try:
        with open_regular(folder / MANIFEST) as file:
            text = file.read(MAX_MANIFEST_BYTES + 1).decode()
        manifest = Manifest.from_text(text)
    except FileNotFoundError:
        raise DamagedManifestError("is missing") from None
    except PermissionError as error:
        raise UnreadableManifestError(f"cannot be read: {error.strerror}") from None
    except NotRegularFileError as error:
        raise DamagedManifestError(str(error)) from None
    except OSError as error:
        raise DamagedManifestError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DamagedManifestError("is not what was written") from None
    if step_of(folder) not in (None, manifest.step):
        raise DamagedManifestError(f"is of step {manifest.step}")
    if fault := first_fault(manifest):
        raise DamagedManifestError(f"is no manifest: {fault}")
    return manifest
