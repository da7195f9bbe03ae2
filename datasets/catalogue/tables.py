"""Read the catalogue's TOML tables, in which a figure is ``[value, "source"]``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")
"""Suffixes of files with a typed model or cluster."""


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """The tables of ``NAME.toml`` beside this module, read once a process."""
    with (FOLDER / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


def figure(row: Mapping[str, Any], key: str, sources: MutableMapping[str, str]) -> Any:
    """The value of a figure; its source goes to ``sources[key]``.

    A bundled table is part of the program, and tests would find the fault before any user.

    Raises:
        ValueError: a figure without a source.
    """
    value, source = row[key]
    if not isinstance(source, str) or not source:
        raise ValueError(f"{key} has no source")
    sources[key] = source
    return value
