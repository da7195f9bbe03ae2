"""Lock of a folder of checkpoints: one run writes in it.

The file names host, process and its start time. It is read and written under the system's file
lock, and emptied at the end; that of a process that is gone is taken over.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ....spec.codec import canonical_json, from_json
from ....spec.errors import InputError

NAME = ".lock"
MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A process that writes in a folder.

    ``started``: its start since the host's boot in clock ticks, 0 if unknown.
    """

    host: str
    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started: Annotated[int, Field(ge=0)]

    @classmethod
    def current(cls) -> LockOwner:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()))

    def is_gone(self) -> bool:
        """True if the process ended; False on another host, where nobody can tell."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is another user's
            pass
        status = _status(self.pid)
        if status[:1] in (["Z"], ["X"]):  # it ended, and its parent has not asked how
            return True
        now = _started(self.pid)
        return bool(self.started and now) and self.started != now


def take_lock(root: Path) -> None:
    """Make this process the one that writes in a folder.

    Raises:
        InputError: another run writes in it.
        OSError: the lock cannot be written.
    """
    path = root / NAME
    with _open_locked(path) as descriptor:
        text = os.pread(descriptor, MAX_BYTES, 0)
        current = LockOwner.current()
        if text:
            try:
                owner = from_json(LockOwner, text, str(path))
            except InputError as error:
                allowed = f"a folder without a damaged lock; if no run writes in it: rm {path}"
                raise InputError("--checkpoint", str(error), allowed) from None
            if owner != current and not owner.is_gone():
                raise InputError("--checkpoint", *_refusal(owner, root))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, canonical_json(current).encode(), 0)
        os.fsync(descriptor)


def release_lock(root: Path) -> None:
    """Let other runs write in a folder, if this process holds its lock."""
    with _open_locked(root / NAME) as descriptor:
        if os.pread(descriptor, MAX_BYTES, 0) == canonical_json(LockOwner.current()).encode():
            os.ftruncate(descriptor, 0)


def _refusal(owner: LockOwner, root: Path) -> tuple[str, str]:
    given = f"{root}, in which process {owner.pid} on {owner.host} writes"
    if owner.host == socket.gethostname():
        return given, "a folder of its own for each run, or this one after that run"
    return given, f"a folder of its own for each run; if that run ended: rm {root / NAME}"


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "its lock is no regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _started(pid: int) -> int:
    """Start of a process in clock ticks since boot (proc(5), stat, field 22); 0 if unknown."""
    status = _status(pid)
    return int(status[19]) if len(status) > 19 else 0


def _status(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; none if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
