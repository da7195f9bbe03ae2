"""Frameworks' files among what a verb or a function takes for a plan."""

from __future__ import annotations

from pathlib import Path

from ...spec.errors import InputError

BESIDE = ("source", "model", "cluster", "global_batch", "seq_len")
"""Flags that say what a framework's file leaves out."""
SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".py", ".args")


def is_framework_file(path: str, source: str | None) -> bool:
    """True if a file is a framework's by its keys, its suffix or ``--from``."""
    if source is not None:
        return True
    suffix = Path(path).suffix.casefold()
    if suffix not in SUFFIXES or not Path(path).expanduser().is_file():
        return False
    return suffix != ".json" or _has_known_keys(path)


def _has_known_keys(path: str) -> bool:
    from .framework_file import read_framework_file
    from .shipped import kinds_of

    try:
        return bool(kinds_of(read_framework_file(path)))
    except InputError:  # the reader of plans says what is wrong with it
        return False
