"""Kind of a catalogue figure's source, by its first words.

measured     a table of measurements, a run, a published log or benchmark
data sheet   printed by the maker, a standard, or the software's own source
derived      computed from such figures; the source tells how
assumed      without a source: taken from a neighbor or by reasoning
typed        given by a person; never so in the catalogue itself
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

SourceKind = Literal["measured", "data sheet", "derived", "assumed", "typed"]
KINDS: tuple[SourceKind, ...] = ("measured", "data sheet", "derived", "assumed")
"""Kinds of sources in the catalogue."""
TYPED = "typed by a person"
"""Source of a figure that a person gave."""
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
"""Words in the names of publications that report measurements."""


def source_kind(source: str) -> SourceKind:
    """The kind of one source."""
    for word, kind in BY_FIRST_WORD:
        if source.startswith(word):
            return kind
    return "measured" if any(word in source for word in OF_A_MEASUREMENT) else "data sheet"


def source_kinds(sources: Mapping[str, str]) -> dict[str, SourceKind]:
    """The kind of each figure, by its name."""
    return {figure: source_kind(source) for figure, source in sources.items()}
