"""``plan calibrate``: factors fitted to a table of measured runs, stored under a name."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..spec.calibration import NAME_PATTERN
from ..spec.errors import InputError
from .cli_output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console

    from .calibrating import Usable

TAKEN = ("none", "fit")
"""Words that mean something else to ``--calibration``."""


def calibrate_command(given: dict[str, Any]) -> None:
    """Fit a calibration to the table, store it and show what it changes.

    Raises:
        InputError: no usable row, rows of several devices, stacks or formats of products, or a name
            that cannot be used.
    """
    from ..spec.codec import content_hash
    from .calibrating import calibrated, check_seconds, drawn, held_out_errors
    from .calibrations import save_calibration

    check_targets(json=given["json_target"])
    name = _name(given["name"])
    read, rows = _rows(given["data"])
    used = drawn(rows)
    check_seconds(used)
    fitted = calibrated(name, used)
    rest = [row for row in rows if row.run.id not in fitted.fitted_on]
    document = {
        **asdict(fitted),
        "hash": content_hash(fitted),
        "rows_read": read,
        "rows_usable": len(rows),
        "held_out": held_out_errors(rest, fitted),
        "path": str(save_calibration(fitted)),
    }

    def show(out: Console) -> None:
        from .render_calibration import print_calibration

        print_calibration(out, document)

    emit(document, given["json_target"], show)


def _name(text: str | None) -> str:
    if text is None:
        raise InputError("--name", "nothing", "what the calibration shall be called")
    if not re.fullmatch(NAME_PATTERN, text) or text in TAKEN:
        allowed = "1 to 64 letters, digits, dots, dashes or underscores, and not none or fit"
        raise InputError("--name", text, allowed)
    return text


def _rows(text: str | None) -> tuple[int, list[Usable]]:
    """How many rows the table has, and those of its one place that can be used."""
    from ..datasets.published.runs import is_of_memory, published_runs
    from .calibrating import usable, usable_rows

    if text is None:
        raise InputError("--data", "nothing", "a CSV file of measured runs")
    path = Path(text)
    if not path.is_file():
        raise InputError("--data", text, "a CSV file of measured runs")
    if is_of_memory(path):
        raise InputError("--data", text, "a table of step times, not of peaks of memory")
    runs = published_runs(path)
    rows = usable_rows(runs)
    if not rows:
        if runs:
            usable(runs[0])  # says what the first row lacks
        raise InputError("--data", text, "a table with a row that was timed and can be priced")
    places = sorted({row.place for row in rows})
    if len(places) > 1:
        found = ", ".join(map(str, places))
        raise InputError(
            "--data", found, "rows of one device, one stack and one format of products"
        )
    return len(runs), rows
