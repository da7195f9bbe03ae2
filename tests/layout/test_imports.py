"""Who is imported under which name, from where, and what an import brings along."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardwright

SUBPACKAGES = {
    "api",
    "costmodel",
    "datasets",
    "executor",
    "kernels",
    "planner",
    "profiler",
    "spec",
}
HEAVY = {"numpy", "pandas", "pydantic", "sklearn", "torch", "xgboost"}


def run_python(*arguments: str, cwd: Path, safe_path: bool = True) -> str:
    environment = {**os.environ, "PYTHONSAFEPATH": "1" if safe_path else ""}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_package_under_test_is_this_checkout(root: Path) -> None:
    assert Path(str(shardwright.__file__)).resolve() == root / "__init__.py"


def test_import_works_from_a_foreign_folder(root: Path, tmp_path: Path) -> None:
    code = "import shardwright.spec.units as units; print(units.__file__)"
    assert Path(run_python("-c", code, cwd=tmp_path).strip()).resolve() == root / "spec/units.py"


def test_modules_run_from_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise SystemExit('not this one')")
    assert run_python("-m", "shardwright.spec.units", cwd=tmp_path) == ""


def test_spawned_processes_find_the_package(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        "import multiprocessing\n"
        "from shardwright.spec.units import format_bytes\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(format_bytes, [2048.0]))\n"
    )
    assert run_python(str(script), cwd=tmp_path) == "['2 KiB']\n"


@pytest.mark.parametrize("name", sorted(SUBPACKAGES))
def test_bare_names_are_not_ours_under_the_safe_path(root: Path, name: str) -> None:
    code = f"import importlib.util as u; s = u.find_spec({name!r}); print(s.origin if s else '')"
    ours = str(root / name / "__init__.py")
    assert run_python("-c", code, cwd=root).strip() != ours
    # And without it they would be, which is why the Makefile, CI and the workers set it.
    assert run_python("-c", code, cwd=root, safe_path=False).strip() == ours


@pytest.mark.parametrize(
    ("path", "line"),
    [("Makefile", "export PYTHONSAFEPATH := 1"), (".ci/run", "export PYTHONSAFEPATH=1")],
)
def test_entry_points_set_the_safe_path(root: Path, path: str, line: str) -> None:
    assert line in (root / path).read_text(encoding="utf-8").splitlines()


def _modules_imported(source: str) -> set[str]:
    """The first name of every absolute import in ``source``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def test_import_reader_sees_absolute_imports_only() -> None:
    source = "import kernels.a as k\nfrom datasets import x\nfrom .spec import y\nimport json"
    assert _modules_imported(source) == {"kernels", "datasets", "json"}


def test_nothing_imports_a_subpackage_by_its_bare_name(
    root: Path, repository_files: tuple[Path, ...]
) -> None:
    wrong = {
        str(path.relative_to(root)): sorted(bare)
        for path in repository_files
        if path.suffix == ".py"
        and (bare := _modules_imported(path.read_text(encoding="utf-8")) & SUBPACKAGES)
    }
    assert wrong == {}


def test_tests_is_no_package(root: Path, repository_files: tuple[Path, ...]) -> None:
    inits = [path for path in repository_files if path.name == "__init__.py"]
    assert [path for path in inits if path.relative_to(root).parts[0] == "tests"] == []


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import shardwright, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_python("-c", code, cwd=tmp_path)))
    assert "shardwright" in loaded
    assert loaded & HEAVY == set()
    assert {name for name in loaded if name.startswith("shardwright.")} == set()


def test_the_planning_side_loads_no_torch(
    root: Path, source_files: tuple[Path, ...], tmp_path: Path
) -> None:
    light = ("spec", "costmodel", "planner", "datasets")
    parts = [path.relative_to(root).with_suffix("").parts for path in source_files]
    names = [
        ".".join(("shardwright", *part)).removesuffix(".__init__")
        for part in parts
        if part[0] in light and part[:2] != ("costmodel", "fitting")
    ]
    assert "shardwright.spec.plan" in names
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(run_python("-c", code, cwd=tmp_path)))
    assert loaded & {"torch", "xgboost", "sklearn", "pandas"} == set()
    assert set(names) <= loaded
