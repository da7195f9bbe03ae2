"""uvicorn with our connections and log, and a prompt shutdown."""

from __future__ import annotations

import signal
import socket

import uvicorn
from fastapi import FastAPI

from .app import close_all
from .gate import MAX_HEADER_BYTES
from .protocol import ProblemProtocol

SHUTDOWN_S = 5


class _UvicornServer(uvicorn.Server):
    """Server that ends the computations first."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer waiting requests with a problem, then close."""
        await close_all(self._app)
        await super().shutdown(sockets)


def run_until_signal(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, which is raised again, or SIGHUP or SIGQUIT."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=ProblemProtocol,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES * 2,
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _UvicornServer(config, app)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    server.run(sockets=[bound])
