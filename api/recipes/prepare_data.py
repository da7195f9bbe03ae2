"""Preparation of data in a child process, which alone loads the libraries that stages need."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...datasets.pipelines.shipped import STAGES
from ...datasets.preparation.result import read_data
from ...datasets.preparation.workers import refused
from ...datasets.recipes.read_recipe import read_recipe
from ...datasets.recipes.recipe import BYTES, Recipe, recipe_of, stage_named
from ...datasets.sources.source_files import needed_libraries, source_files
from ...spec.errors import InputError, RunError

MODULE = "shardwright.datasets.preparation.child"
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
    "TOKENIZERS_PARALLELISM": "false",
}
"""Of libraries: more would change the last bits of sums, and so the bytes."""
EXTRA = "pip install 'shardwright[data]'"
EventCallback = Callable[[dict[str, Any]], None]


def recipe_at(path: Path) -> Recipe:
    """The recipe of a file.

    Raises:
        InputError: no recipe, or one whose libraries are not installed.
    """
    return checked(read_recipe(path, STAGES), path.absolute().parent)


def recipe_from(document: dict[str, Any]) -> Recipe:
    """The recipe of typed keys, with paths from the working folder; errors of :func:`recipe_at`."""
    return checked(recipe_of(document, "recipe", STAGES), Path.cwd())


def checked(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe, if its sources are there and its libraries installed."""
    needs = needed_libraries(source_files(recipe, folder))
    needs = {module: f"format {kind}" for module, kind in needs.items()}
    names = [use.name for use in recipe.stages] + (["windows"] if recipe.windows else [])
    for name in names:
        needs |= dict.fromkeys(stage_named(name, "stages", STAGES).needs, f"stage {name}")
    if recipe.tokenizer != BYTES and not (folder / recipe.tokenizer).is_file():
        raise InputError("tokenizer", recipe.tokenizer, f"{BYTES}, or a tokenizer.json file", BYTES)
    for module, what in needs.items():
        if importlib.util.find_spec(module) is None:
            raise InputError(what, f"no {module} here", "an installed extra data", EXTRA)
    return recipe


def prepare_data(
    recipe: Recipe,
    folder: Path,
    out: Path | None,
    jobs: int = 1,
    share: float = 1.0,
    on_event: EventCallback = lambda event: None,
) -> dict[str, Any]:
    """Prepare data; return its ``data.json``, or an estimate where ``out`` is None.

    Raises:
        InputError: sources that cannot be used, or a folder of another recipe.
        RunError: the preparation failed.
    """
    request = {
        "recipe": recipe.document(),
        "where": "recipe",
        "folder": str(folder),
        "out": None if out is None else str(out.expanduser().absolute()),
        "jobs": jobs,
        "share": share,
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    last: dict[str, Any] = {}
    try:
        if child.stdin is None or child.stdout is None:
            raise RunError("a process that prepares data could not be started")
        with child.stdin:
            json.dump(request, child.stdin)
        for line in child.stdout:
            last = json.loads(line)
            on_event(last)
        code = child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
    return _ended(last, code, out)


def _ended(last: dict[str, Any], code: int, out: Path | None) -> dict[str, Any]:
    match last.get("event"):
        case "done":
            return read_data(out) if out is not None else dict(last["estimate"])
        case "refused":
            raise refused(last["refused"])
        case "failed":
            raise RunError(last["why"])
    raise RunError(f"the preparation of data ended with exit code {code}; the same command goes on")
