"""``plan serve``: bind, guard, answer until stopped."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from pathlib import Path

from ...spec.codec import read_text
from ...spec.errors import InputError, one_of
from .compute.pool import PoolLimits
from .gate import LOOPBACK_HOSTS, GateRules, hash_token
from .logs import LEVELS, configure_logging
from .scratch_folder import scratch_folder

MIN_TOKEN = 16
MAX_CHILDREN = 4
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SENT_BYTES = 2**18
"""What the kernel keeps of an answer for a client that does not read it."""


def serve(
    host: str,
    port: int,
    token_file: str | None,
    db: str | None = None,
    may_execute: bool = False,
    log: str = "error",
) -> None:
    """Serve until SIGINT, SIGTERM, SIGHUP or SIGQUIT.

    Args:
        host: address to listen on.
        port: port; 0 for a free one.
        token_file: file of tokens, one per line.
        db: URL of the jobs' database; a file of this user if None.
        may_execute: whether requests may run plans on this machine.
        log: level of the logged events: ``info`` for all.

    Raises:
        InputError: an unavailable address, a port in use, an open service without tokens, an
            unusable token file or database.
    """
    level = one_of("--log", log, LEVELS)
    hashes = () if token_file is None else read_tokens(token_file)
    local = is_loopback(host)
    if not local and not hashes:
        allowed = "this machine's own address, or another one with --token-file"
        raise InputError("--host", host, allowed, "127.0.0.1")
    from .jobs.database import checked_url, prepare

    url = checked_url(db)
    bound = bind(host, port)
    try:
        _end_as_by_ctrl_c()
        prepare(url)
        from .app import make_app
        from .jobs.no_pickle import refuse_pickles
        from .jobs.service import JobRules
        from .uvicorn_server import run_until_signal

        refuse_pickles()
        configure_logging(level)
        rules = GateRules(hosts=LOOPBACK_HOSTS if local else None, token_hashes=hashes)
        processes = max(2, min(MAX_CHILDREN, os.cpu_count() or 2))
        # one worker is left to others where there are others
        window = processes - 1 if len(hashes) > 1 else None
        limits = PoolLimits(children=processes)
        jobs = JobRules(
            url=url, workers=processes, may_execute=may_execute, log=level, window=window
        )
        shown = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"serving on http://{shown}:{bound.getsockname()[1]} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        with scratch_folder():
            run_until_signal(make_app(rules, limits, jobs), bound)
    except KeyboardInterrupt:  # the usual way to end it
        return
    finally:
        bound.close()


def _end_as_by_ctrl_c() -> None:
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)


def read_tokens(path: str) -> tuple[bytes, ...]:
    """Hashes of the tokens in a file.

    Raises:
        InputError: no readable file, no token, or an easily guessed one.
    """
    text = read_text(Path(path).expanduser(), "a file of tokens, one a line", 65536)
    tokens = [line.strip() for line in text.splitlines() if line.strip()]
    if not tokens:
        raise InputError("--token-file", f"no token in {path}", "one token a line")
    if any(len(token) < MIN_TOKEN for token in tokens):
        allowed = f"tokens of at least {MIN_TOKEN} characters"
        raise InputError("--token-file", f"a short token in {path}", allowed)
    return tuple(hash_token(token) for token in tokens)


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches the address."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket.

    Raises:
        InputError: the name is not an address here, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: only then does asyncio send small answers without a delay of 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)  # of its connections, too
    try:
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        reason = (error.strerror or str(error)).casefold()
        if isinstance(error, socket.gaierror) or "assign" in reason:
            raise InputError("--host", host, f"an address here ({reason})", "127.0.0.1") from None
        allowed = f"a port that is free and may be used ({reason})"
        raise InputError("--port", port, allowed, "0, which takes a free one") from None
    return made
