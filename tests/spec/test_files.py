"""Files in and out: bounded reads, and writes that replace nothing but regular files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shardwright.spec.codec import read_text, write_atomically
from shardwright.spec.errors import InputError


def test_what_never_ends_is_read_up_to_the_limit() -> None:
    with pytest.raises(InputError, match="more than 1000 bytes"):
        read_text(Path("/dev/zero"), "a plan", 1000)


def test_a_large_file_is_refused_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"x" * 1001)
    with pytest.raises(InputError, match="1001 bytes"):
        read_text(path, "a plan", 1000)
    assert len(read_text(path, "a plan", 1001)) == 1001


def test_line_ends_are_made_alike(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\r\nb\rc\nä".encode())
    assert read_text(path, "text") == "a\nb\nc\nä" == path.read_text(encoding="utf-8")


def test_devices_pipes_and_folders_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path, kind in ((pipe, "pipe"), (link, "pipe"), (tmp_path, "folder")):
        with pytest.raises(InputError, match=kind):
            write_atomically(path, "data")
    with pytest.raises(InputError, match="device"):
        write_atomically(Path("/dev/null"), "data")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "plan.json", tmp_path / "plan.json"
    link.symlink_to(target)
    for text in ("new", "newer"):  # the first time the link leads nowhere yet
        write_atomically(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [p.name for p in target.parent.iterdir()] == ["plan.json"]


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(InputError, match="one"):
        write_atomically(one, "data")
    assert one.is_symlink()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_heed_the_umask_and_old_ones_keep_their_mode(tmp_path: Path, umask: int) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("old")
    old.chmod(0o604)
    before = os.umask(umask)
    try:
        write_atomically(new, "data")
        write_atomically(old, "data")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert old.read_text() == "data"


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    write_atomically(path, b"data")
    assert path.read_bytes() == b"data"
