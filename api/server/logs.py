"""The service's log: one JSON line per event, on standard error.

A line holds only names and figures of ours. A request's content (path, query, body, headers, token)
and exception messages never appear; a request is named by its id and route pattern, a job by its id
and its request's.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

Level = Literal["info", "error"]
LEVELS: tuple[Level, ...] = ("info", "error")
LOGGER_NAME = "shardwright.serve"
LIBRARY_LOGGERS = ("uvicorn.error", "asyncio")
"""Loggers of libraries: their errors are faults of ours, the rest is about what clients sent."""


class JsonLines(logging.Formatter):
    """Formatter of a record as one JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format time, level, event and fields; an exception's class and place."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.casefold(),
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            # The first line alone: later ones may quote what a client sent.
            text = next(iter(record.getMessage().splitlines()), "")
            document |= {"event": "fault", "logger": record.name, "message": text}
        else:
            document |= {"event": record.msg, **fields}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            document |= fault_fields(error)
        return json.dumps(document, ensure_ascii=True)


def fault_fields(error: BaseException) -> dict[str, str]:
    """Class and place of an error, without its message, which may quote what a client sent."""
    fields = {"error": type(error).__name__}
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        fields["place"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return fields


def log_child_fault(header: Mapping[str, Any]) -> None:
    """Log the fault of ours that a child's message tells of, if any."""
    if "fault" in header:
        log_event("child_fault", logging.ERROR, **header["fault"])


def configure_logging(level: Level) -> None:
    """Write lines of ``level`` and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOGGER_NAME, *LIBRARY_LOGGERS):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR)
    if level == "info":
        logging.getLogger(LOGGER_NAME).setLevel(logging.INFO)


def log_event(event: str, level: int = logging.INFO, **fields: str | float | None) -> None:
    """Log an event; fields without a value are left out."""
    logger = logging.getLogger(LOGGER_NAME)
    if logger.isEnabledFor(level):
        present = {name: value for name, value in fields.items() if value is not None}
        logger.log(level, event, extra={"fields": present})
