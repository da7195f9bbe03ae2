"""Timing of file reads and writes, as in offloading; without torch.

Direct I/O, past the page cache, with one aligned buffer, as in offloading. Where the file system
has no direct I/O the kind of the rows tells so: rates of the page cache are no drive's. One
process reads and writes; ranks that share a drive share its rate.
"""

from __future__ import annotations

import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...spec.errors import InputError
from ...spec.units import MIB

BLOCK_BYTES = 4 * MIB
FILE_BYTES = (4 * MIB, 64 * MIB)
REPEATS = 3
"""Of each size and direction: 204 MiB are written in all."""
NO_FOLDER = "no folder was given (--nvme FOLDER)"
DIRECT = getattr(os, "O_DIRECT", 0)
"""Linux only; elsewhere files are read and written through the cache."""


def measure_storage(folder: Path) -> list[dict[str, Any]]:
    """Rows as spec.cluster.machine_profile.CopyRow, medians.

    Args:
        folder: for a file of 64 MiB, removed at the end.

    Raises:
        InputError: no such folder, or it cannot hold the file.
    """
    try:
        if shutil.disk_usage(folder).free < 2 * max(FILE_BYTES):
            raise InputError("--nvme", str(folder), "a folder with 128 MiB free")
        descriptor, name = tempfile.mkstemp(prefix="shardwright-", dir=folder)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError("--nvme", f"{folder} ({why})", "a folder that can be written") from None
    path = Path(name)
    try:
        os.close(descriptor)
        return _measure(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError("--nvme", f"{folder} ({why})", "a folder that can be written") from None
    finally:
        path.unlink(missing_ok=True)


def _measure(path: Path) -> list[dict[str, Any]]:
    descriptor, direct = _opened(path)
    suffix = "" if direct else "_cached"
    buffer = mmap.mmap(-1, BLOCK_BYTES)  # of pages, so aligned for direct I/O
    try:
        buffer.write(os.urandom(BLOCK_BYTES))
        rows = []
        for size in FILE_BYTES:
            for kind, transfer in (("nvme_write", _write), ("nvme_read", _read)):
                timing = _timed(partial(transfer, descriptor, buffer, size))
                rows.append({"kind": kind + suffix, "payload_bytes": size, **timing})
        return rows
    finally:
        buffer.close()
        os.close(descriptor)


def _opened(path: Path) -> tuple[int, bool]:
    """The file, and True for direct I/O.

    A block is written, for some systems refuse only then.
    """
    if DIRECT:
        try:
            descriptor = os.open(path, os.O_RDWR | DIRECT)
        except OSError:
            return os.open(path, os.O_RDWR), False
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                os.pwrite(descriptor, page, 0)
        except OSError:
            os.close(descriptor)
        else:
            return descriptor, True
    return os.open(path, os.O_RDWR), False


def _timed(transfer: Callable[[], None]) -> dict[str, float]:
    times = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        transfer()
        times.append(time.perf_counter() - start_s)
    median_s = statistics.median(times)
    return {"time_s": median_s, "spread": (max(times) - min(times)) / median_s}


def _write(descriptor: int, buffer: mmap.mmap, size: int) -> None:
    for offset in range(0, size, BLOCK_BYTES):
        if os.pwrite(descriptor, buffer, offset) != BLOCK_BYTES:
            raise OSError("the folder is full")
    os.fsync(descriptor)


def _read(descriptor: int, buffer: mmap.mmap, size: int) -> None:
    if hasattr(os, "posix_fadvise"):  # drop the file from the page cache
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
    for offset in range(0, size, BLOCK_BYTES):
        if os.preadv(descriptor, [buffer], offset) != BLOCK_BYTES:
            raise OSError("the file is shorter than what was written")
