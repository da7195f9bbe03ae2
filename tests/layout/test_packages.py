"""The package list, the folders and the public names say the same thing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import shardwright

PUBLIC_NAMES = [
    "CheckpointHandle",
    "Client",
    "PlanHandle",
    "__version__",
    "checkpoint",
    "clusters",
    "compare",
    "data",
    "diagnose",
    "errors",
    "execute",
    "explain",
    "import_plan",
    "models",
    "parallelize",
    "plan",
    "simulate",
    "size",
    "validate",
    "what_if",
]


def test_package_list_equals_the_folders(root: Path, package_folders: tuple[Path, ...]) -> None:
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    listed = config["tool"]["setuptools"]["packages"]
    found = [
        ".".join(("shardwright", *folder.relative_to(root).parts)) for folder in package_folders
    ]
    assert listed == sorted(set(listed))
    assert listed == found


def test_every_module_lies_in_a_listed_package(
    root: Path, source_files: tuple[Path, ...], package_folders: tuple[Path, ...]
) -> None:
    outside = {"benchmarks", "container", "docs", "notebooks", "tools"}
    stray = [
        path.relative_to(root)
        for path in source_files
        if path.parent not in package_folders and path.relative_to(root).parts[0] not in outside
    ]
    assert stray == []


def test_public_names_are_exactly_these() -> None:
    assert shardwright.__all__ == PUBLIC_NAMES
    assert dir(shardwright) == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_resolves(name: str) -> None:
    assert getattr(shardwright, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        shardwright.no_such_name  # noqa: B018 - the access is the test
