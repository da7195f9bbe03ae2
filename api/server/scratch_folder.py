"""One folder for all temporary files of a service and its processes.

It goes with the service; the folder of a service that was killed goes when the next one starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "shardwright-serve-"
LOCK = ".lock"
"""Held as long as the service lives, however it ends."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in which this process and its children put their temporary files."""
    remove_abandoned(Path(tempfile.gettempdir()))
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = os.open(Path(name) / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tempfile.tempdir = os.environ["TMPDIR"] = name
            yield Path(name)
        finally:
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR")
            if before[1] is not None:
                os.environ["TMPDIR"] = before[1]
            os.close(lock)


def remove_abandoned(place: Path) -> None:
    """Remove the folders of this user's services that are gone."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
