"""Paths of checkpoints: of this machine's files, or by URL; what differs between the two."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeVar

from ....spec.codec import read_text
from ....spec.errors import InputError
from ....spec.files import MAX_DOCUMENT_BYTES
from .far_path import FarPath, is_url

CheckpointPath = Path | FarPath
AnyPath = TypeVar("AnyPath", bound=CheckpointPath)


def checkpoint_path(text: str) -> CheckpointPath:
    """The path of a typed folder.

    Raises:
        InputError: a URL that no library serves.
    """
    return FarPath(text) if is_url(text) else Path(text)


def document_text(path: CheckpointPath, what: str) -> str:
    """Text of a small file.

    Raises:
        InputError: missing, too large, or no text.
    """
    if not isinstance(path, FarPath):
        return read_text(path, what)
    try:
        data = path.read_bytes(MAX_DOCUMENT_BYTES + 1)
        if len(data) <= MAX_DOCUMENT_BYTES:
            return data.decode()
        given = f"more than {MAX_DOCUMENT_BYTES} bytes"
    except UnicodeDecodeError:
        given = "binary data"
    except OSError as error:
        given = str(error)
    raise InputError(str(path), given, f"{what} in UTF-8 text")


def remove_tree(path: CheckpointPath) -> None:
    """Remove a folder and all in it, as far as that can be."""
    if isinstance(path, FarPath):
        path.remove_tree()
    else:
        shutil.rmtree(path, ignore_errors=True)


def write_whole(path: CheckpointPath, data: bytes) -> None:
    """Write a small file that others look for: it is there whole, or ends before its end.

    Without a rename, who looks compares the last byte or a digest.
    """
    if isinstance(path, FarPath):
        path.write_bytes(data)
        return
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.rename(path)
