"""Reads of regular files only: no link, device or pipe is followed."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from .far_path import FarPath
from .paths import CheckpointPath


class NotRegularFileError(ValueError):
    """A link, a device, a pipe or a folder where a file was to be."""


def open_regular(path: CheckpointPath) -> BinaryIO:
    """Open a regular file to read; never wait, and never follow a link to it.

    Raises:
        NotRegularFileError: it is something else.
        OSError: missing, or not readable.
    """
    if isinstance(path, FarPath):
        return path.open_read()
    if not stat.S_ISREG(path.lstat().st_mode):  # opening a device may already act on it
        raise NotRegularFileError("is no regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularFileError("is no regular file")
    return os.fdopen(descriptor, "rb")
