"""Buckets: files of documents, parted by their texts' digests and sorted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays
from ..recipes.text_document import TextDocument

BUCKETS = 16
"""Parts of a corpus, whatever the processes; each is in memory as a whole."""


def bucket_of(digest: str) -> int:
    """Bucket of a text; buckets in a row are in the order of digests."""
    return int(digest[:4], 16) * BUCKETS >> 16


def bucket_path(folder: Path, number: int) -> Path:
    """File of a bucket's documents."""
    return folder / f"bucket-{number:02d}.jsonl"


def sketch_path(folder: Path, number: int) -> Path:
    """File of a bucket's sketch."""
    return folder / f"sketch-{number:02d}.npz"


def write_documents(path: Path, documents: Iterable[TextDocument]) -> int:
    """Write a bucket, whole or not at all; return the number of documents."""
    count = 0
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        for d in documents:
            row = [d.source, d.domain, d.name, d.text, d.digest, d.tokens, d.copy]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    partial.replace(path)
    return count


def read_documents(path: Path) -> Iterator[TextDocument]:
    """Documents of a bucket, in order."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, domain, name, text, digest, tokens, copy = json.loads(line)
            yield TextDocument(
                source=source,
                domain=domain,
                name=name,
                text=text,
                digest=digest,
                tokens=tokens,
                copy=copy,
            )


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write named arrays, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.npz")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    partial.replace(path)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Named arrays of a file."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def commit_folder(partial: Path, folder: Path) -> None:
    """Give a finished folder its name; whoever sees the name sees all that it had.

    Nothing is flushed to the disk: after a loss of power the folder is counted again, not trusted.
    """
    partial.replace(folder)


class StoredArrays(Mapping[str, np.ndarray[Any, Any]]):
    """Named arrays of a file, each read when asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with np.load(path, allow_pickle=False) as arrays:
            self._names = tuple(arrays.files)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._names:
            raise KeyError(name)
        with np.load(self._path, allow_pickle=False) as arrays:
            array: np.ndarray[Any, Any] = arrays[name]
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class StoredSketches(Sequence[Arrays]):
    """Sketches of all buckets, read when asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return BUCKETS

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < BUCKETS:
            raise IndexError(number)
        return StoredArrays(sketch_path(self._folder, number))
