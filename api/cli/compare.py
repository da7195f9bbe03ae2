"""``plan compare A B``: two plans side by side, term by term."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .output import check_targets, emit
from .plan_file import priced_file

if TYPE_CHECKING:
    from rich.console import Console

    from ..views.comparison import ComparisonSide


def compare_command(given: dict[str, Any]) -> None:
    """Compare the plans in two files.

    Raises:
        InputError: no usable plans.
    """
    from ..views.comparison import Comparison

    check_targets(json=given["json_target"])
    files = given["plan_files"]
    if len(files) != 2:
        what = (
            "nothing"
            if not files
            else "1 plan file"
            if len(files) == 1
            else f"{len(files)} plan files"
        )
        raise InputError("A B", what, "two plan files", "plan compare a.json b.json")
    first, second = (
        _side(file, name, given) for file, name in zip(files, _names(files), strict=True)
    )
    found = Comparison(first=first, second=second)

    def show(out: Console) -> None:
        from ..terminal.comparison import print_comparison

        print_comparison(out, found)

    emit(found.to_document(), given["json_target"], show)


def _names(files: tuple[str, str]) -> tuple[str, str]:
    """The files' names, with their folders where they are equal."""
    first, second = (Path(file).name for file in files)
    return (first, second) if first != second else files


def _side(file: str, name: str, given: dict[str, Any]) -> ComparisonSide:
    from ..views.comparison import ComparisonSide

    found, _ = priced_file(file, given)
    return ComparisonSide(name=name, report=found.report)
