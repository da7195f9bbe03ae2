"""``plan calibrate``: constants fitted to a table of measured runs, stored under a name.

A table of step times gives factors of time, one of peaks of memory constants of memory. Under the
name of a calibration of the same device and stack the other half of it stays as it is: times are of
one format of products, memory of any.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..spec.calibration import NAME_PATTERN
from ..spec.errors import InputError
from .cli_output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console

    from ..spec.calibration import Calibration, Place
    from .calibrating import Usable

ROWS = "a table with a row that was measured and can be priced"
TAKEN = ("none", "fit")
"""Words that mean something else to ``--calibration``."""


def calibrate_command(given: dict[str, Any]) -> None:
    """Fit a calibration to the table, store it and show what it changes.

    Raises:
        InputError: no usable row, rows of several devices, stacks or formats of products, or a name
            that cannot be used.
    """
    from ..datasets.published.runs import is_of_memory

    check_targets(json=given["json_target"])
    name, path = _name(given["name"]), _path(given["data"])
    of_memory = is_of_memory(path)
    document = _of_memory(name, path) if of_memory else _of_times(name, path)

    def show(out: Console) -> None:
        from .render_calibration import print_calibration, print_memory_calibration

        shown = print_memory_calibration if of_memory else print_calibration
        shown(out, document)

    emit(document, given["json_target"], show)


def _of_times(name: str, path: Path) -> dict[str, Any]:
    from .calibrating import calibrated, check_seconds, drawn, held_out_errors

    read, rows = _rows(path)
    used = drawn(rows)
    check_seconds(used)
    fitted = calibrated(name, used)
    kept = _stored(name, fitted.place)
    fitted = replace(fitted, memory=None if kept is None else kept.memory)
    rest = [row for row in rows if row.run.id not in fitted.fitted_on]
    found = {"rows_read": read, "rows_usable": len(rows)}
    return _saved(fitted) | found | {"held_out": held_out_errors(rest, fitted)}


def _of_memory(name: str, path: Path) -> dict[str, Any]:
    from ..datasets.published.runs import published_runs
    from ..spec.calibration import unfitted
    from .calibrating import drawn
    from .calibrating_memory import (
        check_bytes,
        first_reason,
        fitted_memory,
        held_out_peaks,
        measured_peaks,
        priced_peaks,
    )

    runs = published_runs(path)
    rows = measured_peaks(priced_peaks(runs))
    if not rows:
        raise first_reason(runs[0]) if runs else InputError(f"--data {path}", "no rows", ROWS)
    place = _one_place({row.place for row in rows}, "one device and one stack")
    used = drawn(rows)
    check_bytes(used)
    memory = fitted_memory(used)
    base = _stored(name, place) or unfitted(name=name, device=place.device, stack=place.stack)
    rest = [row for row in rows if row.run.id not in memory.fitted_on]
    found = {"rows_read": len(runs), "rows_usable": len(rows)}
    held_out = held_out_peaks(rest, memory.constants)
    return _saved(base.with_memory(memory)) | found | {"held_out": held_out}


def _stored(name: str, place: Place) -> Calibration | None:
    """The calibration of that name; what it has of the other kind of table is kept.

    Raises:
        InputError: it is for another device or stack, and would be lost.
    """
    from .calibrations import calibration_folder, load_calibration, stored_names

    known = stored_names()
    if name not in known:
        return None
    found = load_calibration(name)
    if found.place.in_any_format == place.in_any_format:
        return found
    free = next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in known)
    where = calibration_folder() / f"{name}.json"
    allowed = f"a name of none that is for {found.place.in_any_format}, or without {where}"
    raise InputError("--name", name, allowed, free)


def _saved(fitted: Calibration) -> dict[str, Any]:
    from ..spec.codec import content_hash
    from .calibrations import save_calibration

    path = str(save_calibration(fitted))
    return {**asdict(fitted), "hash": content_hash(fitted), "path": path}


def _name(text: str | None) -> str:
    if text is None:
        raise InputError("--name", "nothing", "what the calibration shall be called")
    if not re.fullmatch(NAME_PATTERN, text) or text in TAKEN:
        allowed = "1 to 64 letters, digits, dots, dashes or underscores, and not none or fit"
        raise InputError("--name", text, allowed)
    return text


def _path(text: str | None) -> Path:
    if text is None or not Path(text).is_file():
        given = "nothing" if text is None else text
        raise InputError("--data", given, "a CSV file of measured runs, or of peaks of memory")
    return Path(text)


def _one_place(places: set[Place], what: str) -> Place:
    if len(places) > 1:
        found = ", ".join(map(str, sorted(places)))
        raise InputError("--data", found, f"rows of {what}")
    return next(iter(places))


def _rows(path: Path) -> tuple[int, list[Usable]]:
    """How many rows the table has, and those of its one place that can be used."""
    from ..datasets.published.runs import published_runs
    from .calibrating import usable, usable_rows

    runs = published_runs(path)
    rows = usable_rows(runs)
    if not rows:
        if runs:
            usable(runs[0])  # says what the first row lacks
        raise InputError("--data", str(path), ROWS)
    _one_place({row.place for row in rows}, "one device, one stack and one format of products")
    return len(runs), rows
