"""What the names and blanks of published runs mean here, from ``names.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("names.toml")
TESTS = Path(__file__).with_name("megatron_tests.toml")
OF_TESTS = "Megatron-LM tests/functional_tests"
"""What stands in the ``source`` of a row that is a functional test of Megatron-LM."""


@cache
def names() -> Mapping[str, Any]:
    """The tables ``hardware``, ``dtype``, ``recompute``, ``source`` and the list ``model``."""
    with TABLE.open("rb") as file:
        return tomllib.load(file)


@cache
def _tests() -> Mapping[str, Any]:
    with TESTS.open("rb") as file:
        return tomllib.load(file)


def test_entry(source: str, model: str) -> Mapping[str, Any]:
    """What a functional test of Megatron-LM is run with; empty if the row is none that is known.

    Args:
        source: the cell ``source``, the path of the golden values.
        model: the cell ``model``, which names the test.
    """
    found: Mapping[str, Any] = _tests().get(model, {}) if OF_TESTS in source else {}
    recorded = source.rpartition("golden_values_")[2].removesuffix(".json")
    return {**found, "attention": "unfused"} if recorded in found.get("unfused_in", ()) else found


def model_entry(name: str) -> Mapping[str, Any]:
    """The entry of a model by the start of its name; empty if there is none."""
    entries: list[Mapping[str, Any]] = names()["model"]
    return next((entry for entry in entries if name.startswith(entry["starts"])), {})


def source_entry(source_name: str, source: str = "", notes: str = "") -> Mapping[str, Any]:
    """What a source leaves out; empty if nothing is known of it.

    Args:
        source_name: its short name.
        source: the cell ``source``, which is looked into where the name is unknown.
        notes: the cell ``notes``, likewise.
    """
    sources: Mapping[str, Mapping[str, Any]] = names()["source"]
    if source_name in sources:
        return sources[source_name]
    origins: list[Mapping[str, Any]] = names()["origin"]
    found = next(
        (e for e in origins if e["contains"] in source and e.get("noted", "") in notes), {}
    )
    return sources[found["like"]] if "like" in found else found
