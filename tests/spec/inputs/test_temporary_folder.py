"""Temporary folders go with their owner, or at the next start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shardwright.spec.temporary_folder import TemporaryFolder

PREFIX = "shardwright-test-"
OWNER = f"""
import time
from shardwright.spec.temporary_folder import TemporaryFolder
folder = TemporaryFolder({PREFIX!r})
(folder.path / "kept").mkdir()
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_killed_owners_folder_goes_at_the_next_start_and_a_living_ones_stays(place: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-P", "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    theirs = Path(owner.stdout.readline().strip())
    assert theirs.parent == place
    with TemporaryFolder(PREFIX) as mine:
        assert theirs.is_dir()
    assert not mine.path.exists()
    owner.kill()
    owner.communicate()
    assert theirs.is_dir()
    TemporaryFolder("another-").close()
    assert theirs.is_dir()
    with TemporaryFolder(PREFIX) as mine:
        assert [path.name for path in place.iterdir()] == [mine.path.name]


def test_a_folder_that_is_gone_is_closed_without_a_word(place: Path) -> None:
    folder = TemporaryFolder(PREFIX)
    for path in folder.path.iterdir():
        path.unlink()
    folder.path.rmdir()
    folder.close()
    folder.close()
    assert not list(place.iterdir())
