"""An SQLite file that is held to its place.

SQLite goes on writing to a file that was moved away, deleted or overwritten. What is written so is
lost with the process, and must not be acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

BUSY_TIMEOUT_MS = 10_000
MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
WAL_VERSION = 2


class DisplacedError(OSError):
    """The file at the path is not the open one, or is no whole database."""


class SqliteFile:
    """The database file of a process, as it was when it was first opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: int | None = None
        self._most_bytes = 0
        self._log: tuple[int, int] | None = None

    @property
    def url(self) -> sa.URL:
        """URL that opens the file, and never makes one."""
        query = {"mode": "rw", "uri": "true"}
        return sa.URL.create("sqlite", database=f"file:{quote(str(self._path))}", query=query)

    def prepare_connection(self, connection: Any, record: object) -> None:
        """Set a new connection up."""
        if self._open is None:
            # Never closed: closing it would take the locks from under this process's connections.
            self._open = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")

    def check(self, connection: object = None) -> None:
        """Check that the file is in its place and whole, as far as a glance tells.

        Raises:
            DisplacedError: it is not.
            OSError: it cannot be looked at.
        """
        if self._open is None:
            return
        held = os.fstat(self._open)
        if _identity(self._path) != (held.st_dev, held.st_ino):
            raise DisplacedError("the database's file is no longer in its place")
        header = os.pread(self._open, HEADER_BYTES, 0)
        if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
            raise DisplacedError("the database's file was overwritten")
        page_bytes = int.from_bytes(header[16:18], "big")
        pages_bytes = int.from_bytes(header[28:32], "big") * (
            65536 if page_bytes == 1 else page_bytes
        )
        # While it grows its header runs ahead of it; it shrinks only where someone vacuums it.
        if held.st_size < min(self._most_bytes, pages_bytes):
            raise DisplacedError("the database's file was cut")
        self._most_bytes = held.st_size
        if header[18] == WAL_VERSION:
            log = _identity(self._path.with_name(self._path.name + "-wal"))
            self._log = self._log or log  # a connection is open: it stays the same
            if log is None or log != self._log:
                raise DisplacedError("the database's write-ahead log is no longer in its place")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def make_file(file: Path, checked_bytes: int) -> None:
    """Create an SQLite file with a write-ahead log; check one that exists.

    Args:
        file: to be made.
        checked_bytes: larger files are not read whole.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    made = not file.exists()
    if not made and not os.access(file, os.W_OK):
        raise PermissionError(13, "it may not be written")
    with sqlite3.connect(file, timeout=BUSY_TIMEOUT_MS / 1000) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        if not made and file.stat().st_size <= checked_bytes:
            row = connection.execute("PRAGMA quick_check(1)").fetchone()
            if row is None or row[0] != "ok":
                raise sqlite3.DatabaseError("it is damaged")
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    connection.close()
    if made:
        file.chmod(0o600)  # models and plans of everyone who asks
