"""One run writes in a folder of checkpoints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks.checkpoint_files import RUN

from shardwright.executor.checkpoint.saver import Saver
from shardwright.executor.checkpoint.storage.folder_lock import (
    NAME,
    LockOwner,
    _started,
    release_lock,
    take_lock,
)
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError


@pytest.fixture
def other() -> Iterator[LockOwner]:
    """Another process of this host."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield LockOwner(socket.gethostname(), process.pid, _started(process.pid))
    process.communicate(b"\n")


def held(root: Path, owner: LockOwner) -> None:
    (root / NAME).write_text(canonical_json(owner))


def test_a_second_run_is_refused_by_name_and_removes_nothing(
    tmp_path: Path, other: LockOwner
) -> None:
    writing = tmp_path / ".step-00000004.0badf00d"
    writing.mkdir()
    held(tmp_path, other)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(InputError, match=rf"process {other.pid} on .* writes; allowed: a fol"):
            Saver(tmp_path, 3, RUN, 0, torch.device("cpu"), wait=False)
    finally:
        dist.destroy_process_group()
    assert writing.is_dir()
    release_lock(tmp_path)  # it is not ours
    assert (tmp_path / NAME).read_text() == canonical_json(other)


def test_the_lock_of_an_ended_process_is_taken_over(tmp_path: Path, other: LockOwner) -> None:
    held(tmp_path, replace(other, started=other.started - 1))  # its number was given again
    take_lock(tmp_path)
    assert (tmp_path / NAME).read_text() == canonical_json(LockOwner.current())
    take_lock(tmp_path)  # a run that begins again in this process
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie, with its own start
    held(tmp_path, LockOwner(socket.gethostname(), ended.pid, _started(ended.pid)))
    take_lock(tmp_path)
    ended.wait()
    held(tmp_path, LockOwner(socket.gethostname(), ended.pid, 1))
    take_lock(tmp_path)
    release_lock(tmp_path)
    assert (tmp_path / NAME).read_text() == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (canonical_json(LockOwner("elsewhere", 7, 1)), r"process 7 on elsewhere.*ended: rm .*lock"),
        ("{}", r"damaged lock; if no run writes in it: rm "),
        ("[" * 5000, r"damaged lock"),
        ('{"host":"x","pid":0,"started":1}', r"damaged lock"),
    ],
)
def test_what_cannot_be_told_is_left_to_a_person(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(InputError, match=says):
        take_lock(tmp_path)
    assert (tmp_path / NAME).read_text() == text


def test_a_lock_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / NAME).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="symbolic links"):
        take_lock(tmp_path / "root")
    (tmp_path / "root" / NAME).unlink()
    os.mkfifo(tmp_path / "root" / NAME)
    with pytest.raises(OSError, match="no regular file"):
        take_lock(tmp_path / "root")
    assert not (tmp_path / "mine").exists()
