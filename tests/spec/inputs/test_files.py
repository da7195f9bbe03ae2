"""Files in and out: bounded reads, and writes that replace nothing but regular files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from shardwright.spec.codec import read_text, write_atomically
from shardwright.spec.errors import InputError
from shardwright.spec.files import open_file


def test_devices_are_not_read() -> None:
    for path in ("/dev/zero", "/dev/null"):
        with pytest.raises(InputError, match="got a device"):
            read_text(Path(path), "a plan", 1000)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, listener = tmp_path / "pipe", tmp_path / "listener"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(listener))
        for path, kind in ((pipe, "a named pipe"), (tmp_path, "a folder"), (listener, "No such")):
            with pytest.raises(InputError, match=kind):
                read_text(path, "a plan")
    link = tmp_path / "link"
    link.symlink_to(pipe)
    with pytest.raises(InputError, match="a plan, in a regular file"):
        open_file(link, "a plan")


def test_a_pipe_of_the_shell_is_read_up_to_the_limit() -> None:
    for limit in (2, 1):
        reading, writing = os.pipe()
        os.write(writing, b"{}")
        os.close(writing)
        path = Path(f"/dev/fd/{reading}")
        if limit == 2:
            assert read_text(path, "a plan", limit) == "{}"
        else:
            with pytest.raises(InputError, match="more than 1 bytes"):
                read_text(path, "a plan", limit)
        os.close(reading)


def test_a_size_is_looked_at_before_a_byte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: reading it would take minutes
    with pytest.raises(InputError, match="1099511627776 bytes"):
        read_text(path, "a plan")


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
