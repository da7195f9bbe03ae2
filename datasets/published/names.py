"""Meaning of names and blanks in published runs, from ``names.toml``."""

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
"""Part of the ``source`` of rows that are functional tests of Megatron-LM."""


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
    """Settings of a functional test of Megatron-LM; empty for unknown ones.

    The cell ``source`` is the path of the golden values, the cell ``model`` names the test.
    """
    settings: Mapping[str, Any] = _tests().get(run.model, {}) if TESTS_SOURCE in run.source else {}
    recording = run.source.rpartition("golden_values_")[2].removesuffix(".json")
    return (
        {**settings, "attention": "unfused"}
        if recording in settings.get("unfused_in", ())
        else settings
    )


def model_entry(name: str) -> Mapping[str, Any]:
    """The entry of a model by the start of its name.

    Empty if there is none.
    """
    entries: list[Mapping[str, Any]] = names()["model"]
    return next((entry for entry in entries if name.startswith(entry["starts"])), {})


def source_entry(run: PublishedRun) -> Mapping[str, Any]:
    """Settings that a run's source leaves out; empty if unknown.

    By its short name, else by its cell ``source``, then by every matching exception of ``where``,
    later ones first.
    """
    settings = _source(run)
    for entry in settings.get("where", ()):
        if matches_run(entry, run):
            settings = {**settings, **entry}
    return settings


def _source(run: PublishedRun) -> Mapping[str, Any]:
    sources: Mapping[str, Mapping[str, Any]] = names()["source"]
    if run.source_name in sources:
        return sources[run.source_name]
    origins: list[Mapping[str, Any]] = names()["origin"]
    origin = next(
        (e for e in origins if e["contains"] in run.source and e.get("noted", "") in run.notes), {}
    )
    return sources[origin["like"]] if "like" in origin else origin


def matches_run(entry: Mapping[str, Any], run: PublishedRun) -> bool:
    """True if a run meets every condition of an entry of ``where``."""
    return (
        any(text in run.source for text in entry.get("contains", [""]))
        and any(run.notes.startswith(start) for start in entry.get("noted", [""]))
        and any(run.model.startswith(start) for start in entry.get("models", [""]))
        and run.hardware in entry.get("hardware", [run.hardware])
        and run.dtype in entry.get("dtypes", [run.dtype])
    )
