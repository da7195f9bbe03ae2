"""What the names and blanks of published runs mean here, from ``names.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("names.toml")


@cache
def names() -> Mapping[str, Any]:
    """The tables ``hardware``, ``dtype``, ``recompute``, ``source`` and the list ``model``."""
    with TABLE.open("rb") as file:
        return tomllib.load(file)


def model_entry(name: str) -> Mapping[str, Any]:
    """The entry of a model by the start of its name; empty if there is none."""
    entries: list[Mapping[str, Any]] = names()["model"]
    return next((entry for entry in entries if name.startswith(entry["starts"])), {})


def source_entry(source_name: str) -> Mapping[str, Any]:
    """What a source leaves out; empty if nothing is known of it."""
    found: Mapping[str, Any] = names()["source"].get(source_name, {})
    return found
