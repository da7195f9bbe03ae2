"""Lease of a far folder of checkpoints: one run writes in it.

A far storage has no lock that ends with its owner, and clocks of hosts differ. So the owner writes
a file anew every ``BEAT_S``, and who finds one waits for ``SILENT_S``: where nothing changed, the
owner is gone (C. Gray and D. Cheriton, Leases, SOSP 1989, with the reader's clock alone). One of an
ended process of this host is taken over at once.

Limit: two that begin within ``SETTLE_S`` of each other, on a storage slower than that, may both
think that it is theirs, until the first beat.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from ....spec.codec import canonical_json, from_json
from ....spec.errors import InputError
from .far_path import FarPath
from .folder_lock import MAX_BYTES, LockOwner

NAME = ".lease"
BEAT_S, SILENT_S, SETTLE_S = 15.0, 60.0, 0.2
READS = 3


@dataclass(frozen=True, slots=True)
class _Lease:
    """The file: owner, its token, times written."""

    owner: LockOwner
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    beat: Annotated[int, Field(ge=0, lt=2**53)]


class FolderLease:
    """This process's lease of a folder; see the module."""

    def __init__(self, root: FarPath) -> None:
        self.root = root
        self._path = root / NAME
        self._own = _Lease(LockOwner.current(), secrets.token_hex(8), 0)
        self._ended = threading.Event()
        self._is_lost = False

    def take(self) -> None:
        """Wait until the folder is free, and take it.

        Raises:
            InputError: another run writes in it.
            OSError: the lease cannot be written.
        """
        found = self._read()
        if found is not None and found.owner != self._own.owner and not found.owner.is_gone():
            self._await_silence(found)
        self._write()
        time.sleep(SETTLE_S)
        now = self._read()
        if now is not None and now.token != self._own.token:
            raise self._refusal(now)
        threading.Thread(target=self._beat, name="lease of checkpoints", daemon=True).start()

    def require(self) -> None:
        """Refuse to write where another run has taken the folder over.

        Raises:
            OSError: this process was silent for too long.
        """
        if self._is_lost:
            raise OSError(f"another run has taken {self.root} over while this one was silent")

    def release(self) -> None:
        """Let other runs write in the folder."""
        self._ended.set()
        with contextlib.suppress(OSError, InputError):  # an old lease is taken over
            found = self._read()
            if found is not None and found.token == self._own.token:
                self._path.unlink(missing_ok=True)

    def _await_silence(self, found: _Lease) -> None:
        end_s = time.monotonic() + SILENT_S
        while time.monotonic() < end_s:
            time.sleep(min(1.0, SILENT_S / 10))
            now = self._read()
            if now is None:
                return
            if now != found:
                raise self._refusal(now)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with contextlib.suppress(OSError, InputError):  # the next beat tries again
                found = self._read()
                if found is not None and found.token != self._own.token:
                    self._is_lost = True
                    return
                self._own = replace(self._own, beat=self._own.beat + 1)
                self._write()

    def _read(self) -> _Lease | None:
        for number in range(READS):
            try:
                return from_json(_Lease, self._path.read_bytes(MAX_BYTES), str(self._path))
            except FileNotFoundError:
                return None
            except InputError as error:  # perhaps it is being written
                if number == READS - 1:
                    allowed = f"a folder without a damaged lease; without a run: remove {NAME}"
                    raise InputError("--checkpoint", str(error), allowed) from None
                time.sleep(SETTLE_S)
        raise AssertionError("the last try returns or raises")

    def _write(self) -> None:
        self._path.write_bytes(canonical_json(self._own).encode())

    def _refusal(self, found: _Lease) -> InputError:
        owner = found.owner
        given = f"{self.root}, in which process {owner.pid} on {owner.host} writes"
        return InputError("--checkpoint", given, "a folder of its own for each run")
