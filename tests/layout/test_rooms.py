"""Rooms: small folders with cards, names that say what they hold, docstrings that open plainly."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MAX_MODULES = 20
PACKAGES = ("spec", "costmodel", "planner", "executor", "api", "kernels", "datasets", "profiler")
QUESTION = re.compile(r"(What|Whether|How|Which|Where|Why|Who|When)\b")
MAX_QUESTIONS = 0.01
BANNED = frozenset(
    {"helpers", "misc", "utils", "common", "stuff", "things", "found", "own", "held"}
)
"""Names of files that do not say what the file is for."""
RE_EXPORTS = {"spec/plan": "from .plan import Plan as Plan"}


def modules_by_folder(files: tuple[Path, ...], root: Path) -> dict[str, list[Path]]:
    folders: dict[str, list[Path]] = {}
    for path in files:
        relative = path.relative_to(root)
        if path.suffix == ".py" and path.name not in ("__init__.py", "conftest.py"):
            folders.setdefault(relative.parent.as_posix(), []).append(path)
    return folders


def product(files: tuple[Path, ...], root: Path) -> Iterator[tuple[str, Path, ast.Module]]:
    """Package, path and syntax tree of every product module."""
    for path in files:
        package = path.relative_to(root).parts[0]
        if path.suffix == ".py" and package in PACKAGES:
            yield package, path, ast.parse(path.read_text(encoding="utf-8"))


def test_no_folder_holds_more_modules_than_a_reader_takes_in(
    repository_files: tuple[Path, ...], root: Path
) -> None:
    folders = modules_by_folder(repository_files, root)
    crowded = {
        folder: len(paths)
        for folder, paths in folders.items()
        if len(paths) > MAX_MODULES and not folder.endswith("/techniques")
    }
    assert crowded == {}


def test_file_names_say_what_a_file_is_for(repository_files: tuple[Path, ...], root: Path) -> None:
    folders = modules_by_folder(repository_files, root)
    stems = {path.stem for paths in folders.values() for path in paths}
    assert stems & BANNED == set()


def test_no_type_name_stands_twice_in_a_package(
    repository_files: tuple[Path, ...], root: Path
) -> None:
    names = Counter(
        (package, node.name)
        for package, _, tree in product(repository_files, root)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_every_room_has_a_card_and_no_code(package_folders: tuple[Path, ...], root: Path) -> None:
    for folder in package_folders:
        room = folder.relative_to(root).as_posix()
        if room == "." or room.endswith("techniques"):
            continue
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), room
        code = [ast.unparse(node) for node in tree.body[1:]]
        assert code == ([RE_EXPORTS[room]] if room in RE_EXPORTS else []), room


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def test_docstrings_do_not_open_with_a_question(
    repository_files: tuple[Path, ...], root: Path
) -> None:
    texts = [t for _, _, tree in product(repository_files, root) for t in docstrings(tree)]
    asking = [text.splitlines()[0] for text in texts if QUESTION.match(text)]
    assert len(asking) < MAX_QUESTIONS * len(texts), asking[:20]
