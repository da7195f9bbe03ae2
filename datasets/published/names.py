"""What the names and blanks of published runs mean here, from ``names.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .runs import PublishedRun

TABLE = Path(__file__).with_name("names.toml")
TESTS = Path(__file__).with_name("megatron_tests.toml")
TESTS_SOURCE = "Megatron-LM tests/functional_tests"
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


def test_entry(run: PublishedRun) -> Mapping[str, Any]:
    """What a functional test of Megatron-LM is run with; empty if the run is none that is known.

    The cell ``source`` is the path of the golden values, the cell ``model`` names the test.
    """
    found: Mapping[str, Any] = _tests().get(run.model, {}) if TESTS_SOURCE in run.source else {}
    recorded = run.source.rpartition("golden_values_")[2].removesuffix(".json")
    return {**found, "attention": "unfused"} if recorded in found.get("unfused_in", ()) else found


def model_entry(name: str) -> Mapping[str, Any]:
    """The entry of a model by the start of its name; empty if there is none."""
    entries: list[Mapping[str, Any]] = names()["model"]
    return next((entry for entry in entries if name.startswith(entry["starts"])), {})


def source_entry(run: PublishedRun) -> Mapping[str, Any]:
    """What the source of a run leaves out; empty if nothing is known of it.

    By its short name, else by what stands in its cell ``source``, then with what differs for
    this run: every entry of ``where`` that fits it, the later before the earlier.
    """
    found = _source(run)
    for entry in found.get("where", ()):
        if matches_run(entry, run):
            found = {**found, **entry}
    return found


def _source(run: PublishedRun) -> Mapping[str, Any]:
    sources: Mapping[str, Mapping[str, Any]] = names()["source"]
    if run.source_name in sources:
        return sources[run.source_name]
    origins: list[Mapping[str, Any]] = names()["origin"]
    found = next(
        (e for e in origins if e["contains"] in run.source and e.get("noted", "") in run.notes), {}
    )
    return sources[found["like"]] if "like" in found else found


def matches_run(entry: Mapping[str, Any], run: PublishedRun) -> bool:
    """Whether an entry of ``where`` is of a run: each condition that it has holds."""
    return (
        any(text in run.source for text in entry.get("contains", [""]))
        and any(run.notes.startswith(start) for start in entry.get("noted", [""]))
        and any(run.model.startswith(start) for start in entry.get("models", [""]))
        and run.hardware in entry.get("hardware", [run.hardware])
        and run.dtype in entry.get("dtypes", [run.dtype])
    )
