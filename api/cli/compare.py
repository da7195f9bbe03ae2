"""``plan compare A B``: two plans side by side, term by term."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .frameworks.files import refuse_beside_plans
from .output import check_targets, emit
from .plan_file import priced_file

if TYPE_CHECKING:
    from rich.console import Console

    from ..views.comparison import ComparisonSide


def compare_command(flags: dict[str, Any]) -> None:
    """Compare the plans in two files.

    Raises:
        InputError: no usable plans.
    """
    from ..views.comparison import Comparison

    check_targets(json=flags["json_target"])
    files = flags["plan_files"]
    if len(files) != 2:
        counted = {0: "nothing", 1: "1 plan file"}.get(len(files), f"{len(files)} plan files")
        raise InputError("A B", counted, "two plan files", "plan compare a.json b.json")
    refuse_beside_plans(files, flags)
    first, second = (
        _side(file, name, flags) for file, name in zip(files, _names(files), strict=True)
    )
    comparison = Comparison(first=first, second=second)

    def show(out: Console) -> None:
        from ..terminal.comparison import print_comparison

        print_comparison(out, comparison)

    emit(comparison.to_document(), flags["json_target"], show)


def _names(files: tuple[str, str]) -> tuple[str, str]:
    first, second = (Path(file).name for file in files)
    return (first, second) if first != second else files


def _side(file: str, name: str, flags: dict[str, Any]) -> ComparisonSide:
    from ..views.comparison import ComparisonSide

    simulated, _ = priced_file(file, flags)
    return ComparisonSide(name=name, report=simulated.report)
