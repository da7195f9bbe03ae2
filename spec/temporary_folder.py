"""Temporary folders that are removed even where their owner was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

LOCK = ".lock"
"""Held as long as the folder's owner lives, however it ends."""


class TemporaryFolder:
    """A folder of this process; those of owners that are gone are removed as it is made.

    Args:
        prefix: of its name; owners of one kind share it.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._closed = False

    def close(self) -> None:
        """Remove the folder; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self._folder.cleanup()
        os.close(self._lock)

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def remove_abandoned(place: Path, prefix: str) -> None:
    """Remove this user's folders of a prefix whose owners are gone."""
    for folder in place.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
