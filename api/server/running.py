"""uvicorn as this service runs it: its own connections, one-line log, an end without waiting."""

from __future__ import annotations

import logging
import socket
import sys
import traceback
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from .app import close_all
from .gate import MAX_HEADER_BYTES
from .wire import ProblemProtocol

LOGGERS = ("uvicorn.error", "asyncio")
END_S = 5


class OneLine(logging.Formatter):
    """A fault of ours as one line with its place; what a request held is never logged."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, and the kind and place of the exception that came with it."""
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
            text += f": {type(error).__name__}{place}"
        return f"plan serve: {text}"


class _Server(uvicorn.Server):
    """A server whose end ends the computations, too, before it waits for their answers."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what waits with a problem, then close."""
        await close_all(self._app)
        await super().shutdown(sockets)


def run_until_told(app: FastAPI, bound: socket.socket) -> None:
    """Answer on a listening socket until SIGINT or SIGTERM, which is raised again at the end."""
    _log_one_line()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=ProblemProtocol,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES * 2,
        ws="none",
        timeout_graceful_shutdown=END_S,
    )
    _Server(config, app).run(sockets=[bound])


def _log_one_line() -> None:
    """Errors to the error output, a line each. Warnings are about what clients sent: not ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR)
