"""Contents of a checkpoint of any kind, and its damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ....spec.errors import InputError
from ..integrity import damages, random_state_damage
from ..manifest import Manifest
from ..storage.paths import CheckpointPath
from .dialect import MOMENTS, framework_of
from .look import is_ours, kind_of, look
from .ours import OURS, read_ours
from .source import DamagedFileError, ForeignSource
from .tensors import TensorReader, archived_box
from .weights import step_of

FIRST = 5
"""Damages that are told one by one."""


def checkpoint_document(path: CheckpointPath) -> dict[str, Any]:
    """Kind, names, step, bytes, what is missing and what is damaged of a checkpoint.

    Of one that is too damaged to be looked into, kind and damage alone.

    Raises:
        InputError: no checkpoint, or one with what is not read.
    """
    try:
        return _contents(path)
    except DamagedFileError as error:
        return {
            "kind": kind_of(path),
            "folder": str(path),
            "damaged": [_damage_line(error)],
            "damages": 1,
            "checked": False,
        }


def _contents(path: CheckpointPath) -> dict[str, Any]:
    manifest: Manifest | None = None
    if is_ours(path):
        source, manifest = read_ours(path)
    else:
        source = look(path, "PATH")
    names = framework_of(source)
    moments = [key for key in MOMENTS if any(key in name for name in source.tensors)]
    damaged = [*_damages(source, manifest)]
    step = step_of(source, TensorReader(source))
    return {
        "kind": source.kind,
        "folder": str(source.folder),
        "names": names,
        "model": None if manifest is None else (manifest.run.model_document or {}).get("name"),
        "step": step,
        "tensors": len(source.tensors),
        "values": len(source.values),
        "bytes": source.bytes,
        "files": len(source.files),
        "dtypes": dict(Counter(tensor.dtype for tensor in source.tensors.values())),
        "parts": max((len(t.boxes) for t in source.tensors.values()), default=0),
        "optimizer": moments,
        "missing": _missing(names, moments, step),
        "previous": None if manifest is None else manifest.run.previous,
        "damaged": damaged[:FIRST],
        "damages": len(damaged),
        "checked": source.kind != "safetensors",
    }


def _damage_line(error: InputError) -> str:
    return f"{error.field}: {error.given}"


def _missing(names: str | None, moments: list[str], step: int | None) -> list[str]:
    missing = [] if names else ["names of a known framework"]
    missing += [] if len(moments) == len(MOMENTS) else ["moments of AdamW (--init-from takes it)"]
    return missing + ([] if step else ["step count"])


def _damages(source: ForeignSource, manifest: Manifest | None) -> Iterator[str]:
    if source.kind == OURS and manifest is not None:
        found = [*random_state_damage(manifest), *damages(source.folder, manifest)]
        yield from map(str, found)
        return
    for name, tensor in source.tensors.items():
        for box in tensor.boxes:
            if box.archive:
                try:
                    archived_box(source, name, tensor, box, check=True)
                except InputError as error:
                    yield _damage_line(error)
