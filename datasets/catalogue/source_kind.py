"""How a figure of the catalogue is known, read from the words of its source.

measured     a table of measurements, a run, a published log or benchmark
data sheet   printed by the maker, a standard, or the software's own source
derived      computed from such figures; the source says how
assumed      nobody told us: a neighbour or a reasoning
typed        a person gave it; never so in the catalogue itself
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

SourceKind = Literal["measured", "data sheet", "derived", "assumed", "typed"]
KINDS: tuple[SourceKind, ...] = ("measured", "data sheet", "derived", "assumed")
"""How figures of the catalogue are known."""
TYPED = "typed by a person"
"""The source of a figure that a person gave."""
BY_FIRST_WORD: tuple[tuple[str, SourceKind], ...] = (
    ("measured", "measured"),
    ("assumed", "assumed"),
    ("typed", "typed"),
    ("derived", "derived"),
    ("by its name", "derived"),
    ("by definition", "derived"),
    ("/proc/", "measured"),
    ("recorded runs", "measured"),
)
OF_A_MEASUREMENT = ("public log", "NVIDIA GTC", "Bekman", "Galvatron profile", "ROCm issue")
"""Words of publications that report what somebody measured."""


def source_kind(source: str) -> SourceKind:
    """The kind of one source."""
    for word, kind in BY_FIRST_WORD:
        if source.startswith(word):
            return kind
    return "measured" if any(word in source for word in OF_A_MEASUREMENT) else "data sheet"


def source_kinds(sources: Mapping[str, str]) -> dict[str, SourceKind]:
    """The kind of each figure, by its name."""
    return {figure: source_kind(source) for figure, source in sources.items()}
