"""Settings: a run as a framework's file says it, in the words of plan's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSettings:
    """Blocks with strategies of their own.

    ``counts``: of each stage. ``strategies``: strategy flags of each in the order of data, all but
    those of the pipeline and the batch. ``where``: the file's key for them, in errors.
    """

    counts: tuple[int, ...]
    strategies: tuple[Mapping[str, Any], ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a file decides; what is not in it is left out.

    ``model``: a preset, or typed keys. ``inputs`` and ``strategy`` are flags of the problem and of
    ``plan simulate``. ``chunk_layers``: layers of each pipeline chunk in the order of data,
    embedding and head counted, where they are not even. ``blocks``: where blocks have strategies of
    their own; ``strategy`` is then that of the other layers.
    """

    stack: str
    model: str | Mapping[str, Any] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    strategy: Mapping[str, Any] = field(default_factory=dict)
    chunk_layers: tuple[int, ...] | None = None
    blocks: BlockSettings | None = None


def said(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
