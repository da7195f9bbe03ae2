"""Every technique has one name and one place in the order, in every package that needs it."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shardwright.costmodel import techniques as prices
from shardwright.executor import techniques as runs
from shardwright.planner import techniques as choices
from shardwright.spec import techniques as values

PACKAGES = {"values": values, "prices": prices, "choices": choices, "runs": runs}
WHOLE = ("values", "prices")
"""Packages that have every technique; a technique need not be searched for, or run."""
Roles = tuple[Any, ...]


def disagreements(listed: dict[str, Roles]) -> list[str]:
    """Faults of these tuples."""
    order = [entry.name for entry in listed["values"]]
    faults = [f"{role}: a name twice" for role, m in listed.items() if len({*m}) < len(m)]
    for role, entries in listed.items():
        names = [entry.name for entry in entries]
        expected = order if role in WHOLE else [name for name in order if name in names]
        if names != expected:
            faults.append(f"{role}: {names} instead of {expected}")
    run = [entry.name for entry in listed.get("runs", ())]
    for value in listed["values"]:
        program = getattr(value, "program", None)
        is_run = bool(value.kinds.executable) if program is None else program.executable
        if is_run != (value.name in run):
            faults.append(f"{value.name}: run is {value.name in run}, not as its kinds say")
    return faults


def test_packages_agree() -> None:
    listed = {role: package.TECHNIQUES for role, package in PACKAGES.items()}
    assert disagreements(listed) == []
    scopes = {value.name: value.program is None for value in values.TECHNIQUES}
    assert scopes == {price.name: price.program is None for price in prices.TECHNIQUES}


@pytest.mark.parametrize("role", PACKAGES)
def test_every_module_of_a_package_is_listed(role: str) -> None:
    package: ModuleType = PACKAGES[role]
    assert isinstance(package.TECHNIQUES, tuple)
    files = [item.name for item in pkgutil.iter_modules(package.__path__)]
    assert sorted(each.name for each in package.TECHNIQUES) == sorted(files)
    for name in files:
        module = importlib.import_module(f"{package.__name__}.{name}")
        assert module.TECHNIQUE in package.TECHNIQUES
        assert module.TECHNIQUE.name == name


def test_disagreement_would_be_seen() -> None:
    def toys(*own: str, runs: str = "b") -> Roles:
        kinds = {name: SimpleNamespace(executable=(name,) if name in runs else ()) for name in own}
        return tuple(_Toy(name=name, kinds=kinds[name]) for name in own)

    good = {"values": toys("a", "b"), "prices": toys("a", "b"), "runs": toys("b")}
    assert disagreements(good) == []
    assert disagreements({**good, "prices": toys("a")})
    assert disagreements({**good, "runs": toys("b", "a")})
    assert disagreements({**good, "runs": toys("c")})
    assert disagreements({**good, "runs": ()})
    assert disagreements({**good, "values": toys("b", "a")})
    assert disagreements({**good, "values": toys("a", "b", runs="ab")})


class _Toy(SimpleNamespace):
    """A role of nobody, with a name; two are never the same."""

    __hash__ = object.__hash__
