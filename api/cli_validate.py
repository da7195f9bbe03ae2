"""``plan validate``: predictions beside published measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..spec.errors import InputError
from .cli_output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def validate_command(given: dict[str, Any]) -> None:
    """Price the table that was given, or the bundled one.

    Raises:
        InputError: no such file or calibration, or a row that cannot be read.
    """
    from .validation import validate

    check_targets(json=given["json_target"])
    document = validate(_table(given["data"]), given["calibration"] or "none")

    def show(out: Console) -> None:
        from .render_validate import print_validation

        print_validation(out, document)

    emit(document, given["json_target"], show)


def _table(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.is_file():
        raise InputError("--data", text, "a CSV file of runs or of peak memory")
    return path
