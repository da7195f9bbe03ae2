"""``plan data``: prepare data by a recipe, estimate it, or show what is prepared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from ..cli.output import ProgressLine, check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console

DRY_RUN_SHARE = 0.02


def data_command(flags: dict[str, Any]) -> None:
    """Prepare data, or show a folder of it.

    Raises:
        InputError: no recipe and no prepared data, or flags that do not go together.
        RunError: the preparation failed.
    """
    check_targets(json=flags["json_target"])
    if flags["recipe"] is None:
        raise InputError("RECIPE.yaml", "nothing", "a recipe or a folder", "plan data recipe.yaml")
    path = Path(flags["recipe"]).expanduser()
    document = _shown(path, flags) if path.is_dir() else _prepared(path, flags)

    def show(out: Console) -> None:
        from ..terminal.data import print_data, print_estimate

        (print_data if document["kind"] == "data" else print_estimate)(out, document)

    emit(document, flags["json_target"], show)


def _shown(path: Path, flags: dict[str, Any]) -> dict[str, Any]:
    from ...datasets.preparation.result import read_data

    for name in ("out", "sample", "dry_run", "jobs"):
        if flags[name]:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, f"with the folder {path}", "a recipe before it")
    return read_data(path)


def _prepared(path: Path, flags: dict[str, Any]) -> dict[str, Any]:
    from .prepare_data import prepare_data, recipe_at

    out, dry_run = flags["out"], flags["dry_run"]
    if (out is None) is not dry_run:
        given = "nothing" if out is None else f"{out} with --dry-run"
        raise InputError("--out", given, "a folder to write, or --dry-run without one", "--out DIR")
    recipe = recipe_at(path)
    share = share_of(flags["sample"]) if flags["sample"] else DRY_RUN_SHARE if dry_run else 1.0
    with ProgressLine("preparing", "parts") as line:

        def on_event(event: dict[str, Any]) -> None:
            if event["event"] == "task":
                line(event["done"], event["total"], event["stage"])

        folder = path.absolute().parent
        target = None if out is None else Path(out)
        return prepare_data(recipe, folder, target, flags["jobs"] or 1, share, on_event)


def share_of(text: str) -> float:
    """Share that a text such as ``1%`` means.

    Raises:
        InputError: none above 0 and at most 100 %.
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if not text.strip().endswith("%") or not 0 < share <= 1:
        raise InputError("--sample", text, "a share above 0% and at most 100%", "1%")
    return share
