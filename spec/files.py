"""Bounded reads and atomic writes of text files."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from .errors import InputError, nearest_name

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file completely or not at all: temp file, fsync, rename.

    A link stays and the file that it leads to is replaced; an existing file keeps its mode, a
    new one has what the umask leaves.

    Raises:
        InputError: the folder is missing or not writable, or the path is no regular file.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary: Path | None = None
    try:
        mode = _mode(path)
        target = Path(os.path.realpath(path))
        name = f".{target.name[:40]}.{secrets.token_hex(8)}"
        with (target.parent / name).open("xb") as file:
            temporary = target.parent / name
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(str(path), error.strerror or str(error), "a writable file path") from None


def flush_to_disk(path: Path) -> None:
    """Flush a file, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(path: Path) -> int | None:
    """Permission bits of the file at ``path``; None without one.

    Raises:
        InputError: a folder, a device, a pipe: renaming a file over it would destroy it.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"
        raise InputError(str(path), kind, "a writable file path")
    return stat.S_IMODE(status.st_mode)


def read_text(path: Path, what: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """A text file's content with normalized line ends.

    Endless ones are read up to the limit.

    Raises:
        InputError: missing, a directory, unreadable, too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
            if len(data) > limit_bytes:
                size = os.fstat(file.fileno()).st_size
                size_text = (
                    f"{size} bytes" if size > limit_bytes else f"more than {limit_bytes} bytes"
                )
                raise InputError(str(path), size_text, f"{what} of ≤ {limit_bytes} bytes")
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise InputError(str(path), "binary data", f"{what} in UTF-8 text") from None
    except FileNotFoundError:
        siblings = _siblings(path)
        raise InputError(
            str(path), "no such file", what, nearest_name(path.name, siblings)
        ) from None
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error), what) from None


def _siblings(path: Path) -> Iterable[str]:
    try:
        return sorted(p.name for p in path.parent.iterdir())[:1000]
    except OSError:
        return []
