"""Type checking sees the package through a link, in a clone of any name, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> Path:
    """A small package in a folder of another name, linked to as ``link/shardwright``."""
    clone = tmp_path / "renamed-clone"
    (clone / "spec").mkdir(parents=True)
    (clone / "__init__.py").write_text("")
    shutil.copyfile(root / "pyproject.toml", clone / "pyproject.toml")
    for name in ("__init__.py", "errors.py", "units.py"):
        shutil.copyfile(root / "spec" / name, clone / "spec" / name)
    # Not part of the package, though seen through the link they look like it.
    for folder in ("tests", "benchmarks"):
        (clone / folder).mkdir()
        (clone / folder / "untyped.py").write_text("def f(x): return x\n")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "shardwright").symlink_to(clone, target_is_directory=True)
    return clone


def _mypy(clone: Path) -> subprocess.CompletedProcess[str]:
    link = clone.parent / "link"
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "-p",
            "shardwright",
            "--config-file",
            str(clone / "pyproject.toml"),
            "--cache-dir",
            os.devnull,
        ],
        cwd=link,
        env={**os.environ, "MYPYPATH": str(link), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_a_renamed_clone_is_checked(clone: Path) -> None:
    done = _mypy(clone)
    assert done.stdout == "Success: no issues found in 4 source files\n", done.stderr
    assert done.returncode == 0


def test_an_error_in_a_renamed_clone_is_found(clone: Path) -> None:
    (clone / "spec" / "broken.py").write_text(
        "from .units import format_bytes\n\n\ndef half() -> int:\n    return format_bytes(1.0)\n"
    )
    done = _mypy(clone)
    assert done.returncode == 1
    assert "shardwright/spec/broken.py:5: error: Incompatible return value type" in done.stdout


def test_the_lint_target_checks_the_package_through_the_link(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert "mypy --strict -p shardwright" in makefile
    assert "MYPYPATH=" in makefile
