"""One run writes in a far folder: leases taken, refused, taken over and lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import fsspec
import pytest

from shardwright.executor.checkpoint.storage import folder_lease
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.checkpoint.storage.folder_lease import NAME, FolderLease
from shardwright.executor.checkpoint.storage.folder_lock import LockOwner
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[FarPath]:
    monkeypatch.setattr(folder_lease, "BEAT_S", 0.05)
    monkeypatch.setattr(folder_lease, "SILENT_S", 0.5)
    monkeypatch.setattr(folder_lease, "SETTLE_S", 0.01)
    system = fsspec.filesystem("memory")
    yield FarPath("memory://leases/one")
    if system.exists("/leases"):
        system.rm("/leases", recursive=True)


def put(root: FarPath, owner: LockOwner, beat: int = 0, token: str = "0" * 16) -> None:
    document = {"owner": owner, "token": token, "beat": beat}
    (root / NAME).write_bytes(canonical_json(document).encode())


ELSEWHERE = LockOwner("another-host", 7, 0)


def test_a_lease_is_taken_and_given_back(root: FarPath) -> None:
    lease = FolderLease(root)
    lease.take()
    first = (root / NAME).read_bytes()
    time.sleep(0.2)
    assert (root / NAME).read_bytes() != first  # it beats
    lease.require()
    lease.release()
    assert not (root / NAME).exists()


def test_a_beating_owner_is_refused(root: FarPath) -> None:
    put(root, ELSEWHERE)
    ended = threading.Event()

    def beat() -> None:
        count = 0
        while not ended.wait(0.02):
            put(root, ELSEWHERE, count := count + 1)

    other = threading.Thread(target=beat)
    other.start()
    try:
        with pytest.raises(InputError, match=r"in which process 7 on another-host writes; allowed"):
            FolderLease(root).take()
    finally:
        ended.set()
        other.join()


def test_a_silent_owner_is_taken_over_after_a_wait(root: FarPath) -> None:
    put(root, ELSEWHERE, beat=41)
    start_s = time.monotonic()
    lease = FolderLease(root)
    lease.take()
    assert time.monotonic() - start_s >= 0.5
    lease.release()


def test_an_ended_process_of_this_host_is_taken_over_at_once(
    root: FarPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lease, "SILENT_S", 60.0)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    put(root, LockOwner(LockOwner.current().host, process.pid, 0))
    lease = FolderLease(root)
    lease.take()
    lease.release()


def test_a_lease_that_another_run_took_is_lost(root: FarPath) -> None:
    lease = FolderLease(root)
    lease.take()
    deadline_s = time.monotonic() + 5.0
    while not lease._is_lost and time.monotonic() < deadline_s:
        put(root, ELSEWHERE, token="1" * 16)  # again: a beat may have been under way
        time.sleep(0.01)
    with pytest.raises(OSError, match="another run has taken memory://leases/one over"):
        lease.require()
    lease.release()
    assert (root / NAME).exists()  # it is the other's


def test_a_damaged_lease_is_one_line(root: FarPath) -> None:
    (root / NAME).write_bytes(b"junk")
    with pytest.raises(InputError, match="a folder without a damaged lease") as refused:
        FolderLease(root).take()
    assert "\n" not in str(refused.value)
