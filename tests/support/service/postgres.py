"""A PostgreSQL server of the tests' own: made when it is first wanted, gone when they end.

It needs Debian's package alone (``make system-deps``), no running server and no rights: where the
tests run as root it runs as another user, who must not be able to read anything of theirs.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

ROLE = "shardwright"
START_S = 30.0
# What a test writes need not survive a power cut.
SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=32MB",
            "unix_socket_directories=", "listen_addresses=127.0.0.1")  # fmt: skip
# It ends when its input closes, also where the tests were killed, and takes its folder along.
KEEPER = 'folder=$1; shift; "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server; \
rm -rf "$folder"'


def programs() -> Path | None:
    """The folder with the newest ``initdb`` and ``postgres`` of this machine."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr/pgsql").glob("*/bin")]
    usable = [folder for folder in folders if (folder / "initdb").exists()]
    if usable:
        return max(usable, key=lambda folder: int(folder.parent.name.partition(".")[0]))
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


@cache
def server() -> str | None:
    """The URL of the server's first database; None where PostgreSQL is not installed."""
    found = programs()
    if found is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="shardwright-postgres-"))
    who = _other_user() if os.geteuid() == 0 else None
    if who is not None:
        os.chown(folder, who.pw_uid, who.pw_gid)
    as_them = {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    data = folder / "data"
    subprocess.run(
        [found / "initdb", "-D", data, "-U", ROLE, "-A", "trust", "--no-sync", "-E", "UTF8",
         "--locale", "C"],
        check=True, capture_output=True, cwd=folder, **as_them,
    )  # fmt: skip
    port = _free_port()
    settings = [part for setting in (*SETTINGS, f"port={port}") for part in ("-c", setting)]
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", KEEPER, "keeper", folder, found / "postgres", "-D", data, *settings],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        start_new_session=True, **as_them,
    )  # fmt: skip
    atexit.register(_end, keeper)
    url = f"postgresql://{ROLE}@127.0.0.1:{port}/postgres"
    _await(url)
    return url


def _end(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()
    keeper.wait(timeout=30)


def _await(url: str) -> None:
    ends_s = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.1)


def _other_user() -> pwd.struct_passwd:
    """Someone who is not root: PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user nobody")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
