"""The wheel holds exactly the package, and works away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import shardwright

OUTSIDE_THE_PACKAGE = {".ci", "benchmarks", "container", "docs", "locks", "notebooks", "tests"}


def _run(command: list[str], cwd: Path, extra: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONSAFEPATH": "1", **extra},
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(
    root: Path, repository_files: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A wheel built by way of the sdist, from a copy and without any download."""
    place = tmp_path_factory.mktemp("wheel")
    for path in repository_files:
        copy = place / "a copy" / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist")]
    _run(command, place / "a copy", {})
    (built,) = (place / "dist").glob("*.whl")
    return built


def test_wheel_holds_every_file_of_the_package_and_no_other(
    wheel: Path, root: Path, repository_files: tuple[Path, ...]
) -> None:
    names = (path.relative_to(root) for path in repository_files)
    inside = {
        f"shardwright/{name.as_posix()}"
        for name in names
        if (len(name.parts) > 1 or name.name in ("__init__.py", "py.typed"))
        and name.parts[0] not in OUTSIDE_THE_PACKAGE
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == inside


def test_wheel_says_version_commands_and_licence(wheel: Path) -> None:
    stem = f"shardwright-{shardwright.__version__}.dist-info/"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(stem + "METADATA").decode()
        commands = archive.read(stem + "entry_points.txt").decode()
        licence = archive.read(stem + "licenses/LICENSE").decode()
    assert f"Version: {shardwright.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "plan = shardwright.api.cli.main:main\n" in commands
    assert "shardwright = shardwright.api.cli.main:main\n" in commands
    assert "Version 2.0, January 2004" in licence


def test_wheel_is_imported_from_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import shardwright.spec.plan as p; print(p.__file__)"
    told = _run([sys.executable, "-c", code], tmp_path, {"PYTHONPATH": str(tmp_path / "site")})
    assert told.strip() == str(tmp_path / "site" / "shardwright" / "spec" / "plan" / "__init__.py")
