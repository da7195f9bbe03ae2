"""Bounded reads and atomic writes of text files."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from .errors import InputError, nearest_name

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
MAX_TABLE_BYTES = 4 * 1024 * 1024
"""Of a CSV table: some 20,000 measured runs, which take thirty times as much in memory."""
MAX_MANIFEST_BYTES = 1024 * 1024 * 1024
"""Of the list of a checkpoint's tensors: some 250 bytes for each slice that a rank has written."""
HANDED_OVER = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Where a shell puts the pipes that it hands to a command."""
KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


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


def open_file(path: Path, what: str, limit_bytes: int | None = None) -> BinaryIO:
    """A regular file, opened for reading without waiting for anyone.

    Also a pipe that the caller's shell handed over (``/dev/stdin``, ``<(…)``): whoever reads it
    keeps to the limit.

    Args:
        path: the file.
        what: what it should be, in an error.
        limit_bytes: its largest size; None for any.

    Raises:
        InputError: missing, a folder, device, pipe or socket, unreadable or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        near = nearest_name(path.name, _siblings(path))
        raise InputError(str(path), "no such file", what, near) from None
    except (OSError, ValueError) as error:
        raise InputError(str(path), getattr(error, "strerror", None) or str(error), what) from None
    try:
        _check_opened(path, os.fstat(descriptor), what, limit_bytes)
    except InputError:
        os.close(descriptor)
        raise
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def _check_opened(path: Path, status: os.stat_result, what: str, limit_bytes: int | None) -> None:
    is_handed = str(path).startswith(HANDED_OVER) and stat.S_ISFIFO(status.st_mode)
    if not stat.S_ISREG(status.st_mode) and not is_handed:
        raise InputError(str(path), _kind(status.st_mode), f"{what}, in a regular file")
    if limit_bytes is not None and status.st_size > limit_bytes:
        raise InputError(str(path), f"{status.st_size} bytes", f"{what} of ≤ {limit_bytes} bytes")


def _kind(mode: int) -> str:
    for is_kind, kind in KINDS:
        if is_kind(mode):
            return kind
    return "no file"


def require_regular(path: Path, what: str) -> None:
    """Refuse what :func:`open_file` does, before a library opens the path itself."""
    open_file(path, what).close()


def read_bytes(path: Path, what: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """A file's content; errors of :func:`open_file`."""
    with open_file(path, what, limit_bytes) as file:
        try:
            data = file.read(limit_bytes + 1)
        except OSError as error:
            raise InputError(str(path), error.strerror or str(error), what) from None
    if len(data) > limit_bytes:
        allowed = f"{what} of ≤ {limit_bytes} bytes"
        raise InputError(str(path), f"more than {limit_bytes} bytes", allowed)
    return data


def read_text(path: Path, what: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """A text file's content with normalized line ends.

    Raises:
        InputError: as :func:`open_file`, or not UTF-8.
    """
    try:
        text = read_bytes(path, what, limit_bytes).decode()
    except UnicodeDecodeError:
        raise InputError(str(path), "binary data", f"{what} in UTF-8 text") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _siblings(path: Path) -> Iterable[str]:
    try:
        return sorted(p.name for p in path.parent.iterdir())[:1000]
    except OSError:
        return []
