"""Requests about files, which are read here, and about sizes, as bodies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.codec import parse_json, read_text
from ..size.limits import typed_prices
from .bodies import (
    STRATEGY_FIELDS,
    WORKLOAD_FIELDS,
    cluster_body,
    model_body,
    prices_body,
    without_none,
)
from .requests import MEMORY_FLAGS, PRICING_FLAGS, checked_flags

MOST_BYTES = 2**20
"""Of a file, which a service takes in one body."""
WORDS = "a text file, of at most 1 MiB for a service"
FILE_FLAGS = (*WORKLOAD_FIELDS, *STRATEGY_FIELDS, *PRICING_FLAGS, *MEMORY_FLAGS)
SIZE_FLAGS = (*WORKLOAD_FIELDS, "stack", "calibration", *MEMORY_FLAGS)


def file_request(
    path: str | Path,
    cluster: Any,
    model: Any,
    flags: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """The body of an import or a diagnosis.

    Args:
        path: the file.
        cluster: the machines that it is for, or None.
        model: where the file does not say it.
        flags: flags of ``plan simulate`` that the file leaves out.
        more: other keys of the body.

    Raises:
        InputError: an unknown flag, or a file that cannot be read.
    """
    checked = checked_flags(flags, ("path", "cluster", "model", *more, *FILE_FLAGS))
    body = {
        "file": text_file(path),
        "cluster": None if cluster is None else cluster_body(cluster),
        "model": None if model is None else model_body(model),
        "workload": _some(checked, WORKLOAD_FIELDS),
        "strategy": _some(checked, STRATEGY_FIELDS),
        **_some(checked, (*PRICING_FLAGS, *MEMORY_FLAGS)),
        **more,
    }
    return without_none(body)


def _some(flags: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: flags[name] for name in names if flags.get(name) is not None}


def text_file(path: str | Path) -> dict[str, str]:
    """A file's name and text.

    Raises:
        InputError: it cannot be read, or is too long for a body.
    """
    file = Path(path).expanduser()
    return {"name": file.name, "text": read_text(file, WORDS, MOST_BYTES)}


def trace_document(path: str | Path) -> Any:
    """The content of a profiler's trace.

    Raises:
        InputError: it cannot be read, or is too long for a body.
    """
    return parse_json(read_text(Path(path).expanduser(), WORDS, MOST_BYTES), str(path))


def size_request(
    model: Any, tokens: str | float, cluster: Any, flags: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """The body of a training's size; ``more`` are its other keys.

    Raises:
        InputError: an unknown flag, or a file that cannot be read.
    """
    checked = checked_flags(flags, ("model", "tokens", "cluster", *more, *SIZE_FLAGS))
    more["prices"] = prices_body(typed_prices(more.get("prices")))
    body = {
        "model": model_body(model),
        "tokens": tokens,
        "cluster": None if cluster is None else cluster_body(cluster),
        "workload": _some(checked, WORKLOAD_FIELDS),
        **_some(checked, ("stack", "calibration", *MEMORY_FLAGS)),
        **more,
    }
    return without_none(body)
