"""``plan checkpoint``: a checkpoint inspected or converted, in a process with torch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from ...executor.checkpoint.storage.far_path import is_url
from ...spec.choices import CHECKPOINT_FORMATS
from ...spec.codec import to_document
from ...spec.errors import InputError, RunError, one_of
from .dry_run_process import output_of

MODULE = "shardwright.executor.checkpoint.foreign.command"
CONFIG = "config.json"


def checkpoint_document(
    path: str | Path, to: str | None = None, out: str | Path | None = None, model: str | None = None
) -> dict[str, Any]:
    """Contents of a checkpoint; with ``to`` and ``out``, the outcome of a conversion.

    ``path`` and ``out``: folders, or URLs. ``model``: of the weights, by name or file, where the
    checkpoint does not say it.

    Raises:
        InputError: no checkpoint, another model, a target that is not empty.
        RunError: without torch, or the conversion failed.
    """
    if (to is None) != (out is None):
        raise InputError("--to" if to is None else "--out", "nothing", "both --to and --out")
    request: dict[str, Any] = {"path": _place(path)}
    if to is not None and out is not None:
        one_of("--to", to, CHECKPOINT_FORMATS)
        request |= {"to": to, "out": _place(out), "model": _model(path, model)}
    return _answered(request)


def _place(typed: str | Path) -> str:
    """A URL as it is, a path from the root."""
    return str(typed) if is_url(str(typed)) else str(Path(typed).expanduser().absolute())


def _model(path: str | Path, name: str | None) -> Any:
    from ...datasets.models.load import load_model

    if name is None and (Path(path) / CONFIG).is_file():
        name = str(path)
    return None if name is None else to_document(load_model(name)[0])


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        raise RunError("checkpoints need torch: pip install 'shardwright[run]'")
    written = output_of(MODULE, json.dumps(request), "the checkpoint could not be read")
    answer = json.loads(written.splitlines()[-1])
    if "input_error" in answer:
        raise InputError(*answer["input_error"])
    if "error" in answer:
        raise RunError(answer["error"])
    document: dict[str, Any] = answer["document"]
    return document
