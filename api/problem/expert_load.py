"""Load of experts from ``--expert-load``: words, a file of a routing trace, or a summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.codec import from_document
from ...spec.errors import InputError
from ...spec.files import read_text
from ...spec.inputs.routing_trace import MAX_TRACE_BYTES, read_trace
from ...spec.model.model_spec import ModelSpec
from ...spec.workload.expert_load import (
    EVEN,
    POWER,
    WORDS,
    PowerLoad,
    RoutedLoad,
    load_violation,
    typed_load,
)

FLAG = "--expert-load"
LoadLike = str | Path | Mapping[str, Any] | PowerLoad | RoutedLoad


def expert_load_of(given: LoadLike | None, model: ModelSpec) -> PowerLoad | RoutedLoad | None:
    """The load of a model's experts; None for an even one.

    Args:
        given: a word, a file's path, or a summary as plans hold it.
        model: the model.

    Raises:
        InputError: another word, no usable file, a load of another model.
    """
    load = _load(given)
    if reason := load_violation(model, load):
        shown = given if isinstance(given, (str, Path)) else "a summary"
        raise InputError(FLAG, shown, f"a load of this model ({reason})", EVEN)
    return load


def is_word(given: LoadLike) -> bool:
    """True for ``even`` and ``power:A``, which no file is meant by."""
    return isinstance(given, str) and (given == EVEN or given.startswith(f"{POWER}:"))


def _load(given: LoadLike | None) -> PowerLoad | RoutedLoad | None:
    if given is None or isinstance(given, (PowerLoad, RoutedLoad)):
        return given
    if isinstance(given, Mapping):
        if given.get("kind") == POWER:
            return from_document(PowerLoad, dict(given), FLAG)
        return from_document(RoutedLoad, dict(given), FLAG)
    if not isinstance(given, (str, Path)):
        raise InputError(FLAG, type(given).__name__, WORDS, EVEN)
    if isinstance(given, str) and is_word(given):
        return typed_load(given, FLAG)
    return load_of_file(given, FLAG)


def load_of_file(given: str | Path, field: str) -> RoutedLoad:
    """The summary of a routing trace.

    Raises:
        InputError: no such file, or another one; ``field`` says where it was given.
    """
    path = Path(given).expanduser()
    if isinstance(given, str) and not path.suffix and not path.exists():
        raise InputError(field, given, WORDS, EVEN)
    return read_trace(read_text(path, "a routing trace (CSV)", MAX_TRACE_BYTES), str(given))
