"""The repository as these tests see it: where it is, its files, its package folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_MADE_BY_TOOLS = {"__pycache__", "build", "dist"}


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


def _walked(root: Path) -> list[Path]:
    """Every file outside hidden and generated folders: for a checkout without git."""
    found: list[Path] = []
    for folder, inner, files in os.walk(root):
        inner[:] = [
            name
            for name in inner
            if name not in _MADE_BY_TOOLS
            and not name.endswith(".egg-info")
            and (name == ".ci" or not name.startswith("."))
        ]
        found += [Path(folder, name) for name in files]
    return found


@pytest.fixture(scope="session")
def repository_files(root: Path) -> tuple[Path, ...]:
    """Files that git tracks or would add, absolute and sorted."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
        paths = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = _walked(root)
    files = tuple(sorted({path for path in paths if path.is_file()}))
    assert root / "pyproject.toml" in files
    return files


@pytest.fixture(scope="session")
def package_folders(root: Path, repository_files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Every folder that holds an ``__init__.py``, the root first."""
    folders = sorted(path.parent for path in repository_files if path.name == "__init__.py")
    assert folders[0] == root
    return tuple(folders)


@pytest.fixture(scope="session")
def source_files(repository_files: tuple[Path, ...], root: Path) -> tuple[Path, ...]:
    """The Python files that are not tests."""
    return tuple(
        path
        for path in repository_files
        if path.suffix == ".py" and path.relative_to(root).parts[0] != "tests"
    )
