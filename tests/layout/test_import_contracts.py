"""The import contracts of pyproject.toml hold, and each one breaks when it should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def _lint(folder: Path, link: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of ``folder``, seen as ``shardwright`` through a link."""
    link.mkdir()
    (link / "shardwright").symlink_to(folder, target_is_directory=True)
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(link), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


@pytest.fixture
def copy(root: Path, source_files: tuple[Path, ...], tmp_path: Path) -> Path:
    """The package's sources under another folder's name."""
    target = tmp_path / "a clone of any name"
    for path in (*source_files, root / "pyproject.toml"):
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return target


def test_contracts_hold(copy: Path, tmp_path: Path) -> None:
    done = _lint(copy, tmp_path / "link")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kept, 0 broken" in done.stdout


# What is planted in a copy, and what the contracts then say.
VIOLATIONS = {
    "upward": (
        {"spec/broken.py": "from .. import planner\n"},
        "spec is not allowed to import shardwright.planner",
    ),
    "sibling": (
        {"costmodel/broken.py": "from .. import executor\n"},
        "costmodel is not allowed to import shardwright.executor",
    ),
    "agents": (
        {"api/broken.py": "import mcp\n"},
        "shardwright is not allowed to import mcp",
    ),
    "inside a function": (
        {"profiler/broken.py": "def late():\n    from .. import planner\n"},
        "profiler is not allowed to import shardwright.planner",
    ),
    "device code by way of the cost model": (
        {
            "costmodel/broken.py": "from .. import kernels\n",
            "planner/broken.py": "from ..costmodel import broken\n",
        },
        "planner is not allowed to import shardwright.kernels",
    ),
    "pandas": (
        {"datasets/broken.py": "import pandas\n"},
        "datasets is not allowed to import pandas",
    ),
    "torch by way of the executor": (
        {
            "executor/broken.py": "import torch\n",
            "api/broken.py": "from ..executor import broken\n",
            "api/cli/__init__.py": "def run():\n    from .. import broken\n",
        },
        "api.cli is not allowed to import torch",
    ),
    "fitting from outside": (
        {
            "costmodel/fitting/__init__.py": "",
            "costmodel/fitting/trees.py": "import xgboost\n",
            "costmodel/broken.py": "from .fitting import trees\n",
        },
        "shardwright.costmodel.broken -> shardwright.costmodel.fitting.trees",
    ),
    "a library of the extra data outside stages": (
        {"datasets/recipes/broken.py": "def late():\n    import pyarrow\n"},
        "is not allowed to import pyarrow",
    ),
    "a subpackage in no layer": ({"serving/__init__.py": ""}, "not listed as layers"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_contract_breaks(copy: Path, tmp_path: Path, name: str) -> None:
    files, said = VIOLATIONS[name]
    if "api/cli/__init__.py" in files:
        (copy / "api/cli/main.py").unlink(missing_ok=True)
    for path, text in files.items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
    done = _lint(copy, tmp_path / "link")
    assert done.returncode == 1, done.stdout + done.stderr
    assert said in done.stdout
