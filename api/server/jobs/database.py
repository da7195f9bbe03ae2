"""The jobs' database: opened, prepared, refused early if unusable."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ....profiler.store.profiles import profile_folder
from ....spec.errors import InputError
from .kept_bytes import trim_ended
from .schema import METADATA, PROBES
from .sqlite_file import DisplacedError, SqliteFile, make_file

DB_FLAG = "--db"
SQLITE_NAMES = ("sqlite", "sqlite+pysqlite")
POSTGRESQL_NAMES = ("postgresql", "postgresql+psycopg")
ALLOWED_URLS = "sqlite:///FILE, postgresql://USER@HOST/NAME, or nothing, for a file of this user"
CHECKED_BYTES = 2**28
"""Larger files are not read whole at the start."""


PROBE_BYTES = 32_768
"""What a probe writes: more than a new job takes."""


class StoreError(Exception):
    """The database cannot be read or written now: full, locked, gone.

    ``reason`` is fit to be shown: it quotes nothing of a request.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def default_url() -> str:
    """The file in the user's data folder."""
    return f"sqlite:///{profile_folder().parent / 'service.sqlite'}"


def checked_url(text: str | None) -> str:
    """Check a database URL; make its path absolute.

    Raises:
        InputError: another kind of URL.
    """
    if text is None:
        return default_url()
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise InputError(DB_FLAG, "what is no URL", ALLOWED_URLS, default_url()) from None
    if not all(text.isprintable() for text in _texts_of(url)):
        given = "a URL with a character that cannot be printed"
        raise InputError(DB_FLAG, given, ALLOWED_URLS, default_url())
    if url.drivername not in (*SQLITE_NAMES, *POSTGRESQL_NAMES):
        raise InputError(DB_FLAG, f"{url.drivername}://…", ALLOWED_URLS, default_url())
    if url.drivername in SQLITE_NAMES:
        return f"sqlite:///{_file_of(url)}"
    if not url.database:
        raise InputError(DB_FLAG, f"{url.drivername}://…", ALLOWED_URLS, default_url())
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _texts_of(url: sa.URL) -> Iterator[str]:
    yield from (url.username or "", url.host or "", url.database or "", str(url.password or ""))
    for name, value in url.query.items():
        yield from (name, *((value,) if isinstance(value, str) else value))


def _file_of(url: sa.URL) -> Path:
    name = url.database or ""
    try:
        if name and name != ":memory:" and not url.query and not url.host:
            return Path(name).expanduser().absolute()
    except RuntimeError:  # ~ of nobody
        pass
    raise InputError(DB_FLAG, "a database that is no file", ALLOWED_URLS, default_url())


def open_engine(url: str, pool_size: int = 5) -> sa.Engine:
    """Engine for the jobs' tables; nothing is opened yet."""
    made = sa.make_url(url)
    if made.get_backend_name() == "postgresql":
        return sa.create_engine(
            made.set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "application_name": "shardwright"},
        )
    file = SqliteFile(Path(made.database or ""))
    engine = sa.create_engine(
        file.url, pool_size=pool_size, execution_options={"schema_translate_map": {"dbos": None}}
    )
    sa.event.listen(engine, "connect", file.prepare_connection)
    sa.event.listen(engine, "commit", file.check)
    return engine


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn every failure of the database into a :class:`StoreError`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        reason = str(error) if isinstance(error, DisplacedError) else type(error).__name__
        raise StoreError(reason) from error


def check_writable(engine: sa.Engine) -> None:
    """Write a row, read it back over another connection, delete it.

    Raises:
        StoreError: the database does not keep it.
    """
    key = secrets.token_hex(16)
    filling = secrets.token_hex(PROBE_BYTES // 2)
    mine = PROBES.c.key == key
    with store_errors():
        with engine.begin() as connection:
            connection.execute(sa.insert(PROBES).values(key=key, filling=filling))
        with engine.begin() as connection:
            found = connection.execute(sa.select(PROBES.c.filling).where(mine)).scalar()
            connection.execute(sa.delete(PROBES).where(mine))
    if found != filling:
        raise StoreError("what was written was not kept")


def prepare(url: str) -> None:
    """Create missing tables, the library's and ours.

    Raises:
        InputError: the database cannot be reached, read or written, with the remedy.
    """
    sqlite = url.startswith("sqlite")
    file = Path(sa.make_url(url).database or "") if sqlite else None
    if file is not None:
        try:
            make_file(file, CHECKED_BYTES)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(file, _reason(error)) from None
    try:
        from dbos import DBOS

        DBOS.migrate(url)
        engine = open_engine(url)
        METADATA.create_all(engine)
        _add_columns(engine)
        engine.dispose()
    except Exception as error:  # the library raises many kinds, its drivers' among them
        if file is not None:
            raise _unusable(file, _reason(error)) from None
        shown = sa.make_url(url).render_as_string(hide_password=True)
        allowed = f"a PostgreSQL database that answers and may be written ({_reason(error)})"
        raise InputError(DB_FLAG, shown, allowed, default_url()) from None


def _add_columns(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        for table in METADATA.sorted_tables:
            columns = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
            for column in table.columns:
                if column.name not in columns:
                    kind = column.type.compile(engine.dialect)
                    connection.execute(
                        sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}")
                    )
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                index.create(connection, checkfirst=True)
        trim_ended(connection)


def _reason(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error
    original = getattr(cause, "orig", cause)
    text = getattr(original, "strerror", None) or str(original) or type(original).__name__
    return " ".join(text.split())[:150]


def _unusable(file: Path, reason: str) -> InputError:
    allowed = (
        f"a database file that is whole, on a disk with room, in a folder that may be written "
        f"({reason}); to start anew move {file.name} and {file.name}-wal away, or to save what "
        f"is left: sqlite3 {file.name} .recover | sqlite3 new.sqlite"
    )
    return InputError(DB_FLAG, str(file), allowed)
