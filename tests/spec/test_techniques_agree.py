"""Every technique has one name and one place in the order, in every package that needs it."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

from shardwright.costmodel import techniques as prices
from shardwright.executor import techniques as runs
from shardwright.planner import techniques as choices
from shardwright.spec import techniques as values

PACKAGES = (values, prices, choices, runs)


def names(modules: tuple[ModuleType, ...]) -> list[str]:
    return [module.__name__.rpartition(".")[2] for module in modules]


def disagreements(
    listed: dict[str, tuple[ModuleType, ...]], whole: tuple[str, ...] = ("values", "prices")
) -> list[str]:
    """What is wrong with these tuples; ``whole`` have every technique, others may lack some."""
    order = names(listed["values"])
    found = [f"{role}: a name twice" for role, m in listed.items() if len({*m}) < len(m)]
    for role, modules in listed.items():
        own = names(modules)
        expected = order if role in whole else [name for name in order if name in own]
        if own != expected:
            found.append(f"{role}: {own} instead of {expected}")
    return found


def listed() -> dict[str, tuple[ModuleType, ...]]:
    roles = ("values", "prices", "choices", "runs")
    return {role: package.TECHNIQUES for role, package in zip(roles, PACKAGES, strict=True)}


def test_packages_agree() -> None:
    assert disagreements(listed()) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.__name__.split(".")[1])
def test_every_module_of_a_package_is_listed(package: ModuleType) -> None:
    assert isinstance(package.TECHNIQUES, tuple)
    files = [item.name for item in pkgutil.iter_modules(package.__path__) if item.name[0] != "_"]
    assert sorted(names(package.TECHNIQUES)) == sorted(files)
    for name in files:
        assert importlib.import_module(f"{package.__name__}.{name}") in package.TECHNIQUES


def test_disagreement_would_be_seen() -> None:
    def toys(role: str, *own: str) -> tuple[ModuleType, ...]:
        return tuple(ModuleType(f"toy.{role}.{name}") for name in own)

    good = {"values": toys("v", "a", "b"), "prices": toys("p", "a", "b"), "runs": toys("r", "b")}
    assert disagreements(good) == []
    assert disagreements({**good, "prices": toys("p", "a")})
    assert disagreements({**good, "runs": toys("r", "b", "a")})
    assert disagreements({**good, "runs": toys("r", "c")})
    assert disagreements({**good, "values": toys("v", "b", "a")})
