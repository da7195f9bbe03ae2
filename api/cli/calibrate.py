"""``plan calibrate``: constants fitted to measured runs, stored under a name.

Step times give time factors, memory peaks memory constants. A calibration already stored under the
name, for the same device, stack and version of the pricing, keeps its other half: times hold for
one product format, memory for any.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.cluster.calibration import NAME_PATTERN, RESERVED_NAMES
from ...spec.errors import InputError
from .output import check_targets, emit, note

if TYPE_CHECKING:
    from rich.console import Console

    from ...spec.cluster.calibration import Calibration, CalibrationScope


def calibrate_command(flags: dict[str, Any]) -> None:
    """Fit a calibration to the table, store it and show its effect.

    Raises:
        InputError: no usable row; rows of several devices, stacks or product formats; or an
            unusable name.
    """
    from ...datasets.published.runs import is_memory_table

    check_targets(json=flags["json_target"])
    name, path = _name(flags["name"]), _path(flags["data"])
    of_memory = is_memory_table(path)
    document = _fit_memory(name, path) if of_memory else _fit_times(name, path)

    def show(out: Console) -> None:
        from ..terminal.calibration import print_calibration, print_memory_calibration

        print_result = print_memory_calibration if of_memory else print_calibration
        print_result(out, document)

    emit(document, flags["json_target"], show)


def _fit_times(name: str, path: Path) -> dict[str, Any]:
    from ...datasets.published.runs import published_runs
    from ..validation.table_fits import fit_times

    fit = fit_times(name, published_runs(path), f"--data {path}")
    stored = _stored_calibration(name, fit.calibration.scope)
    fitted = replace(fit.calibration, memory=None if stored is None else stored.memory)
    return _save(fitted) | fit.counts


def _fit_memory(name: str, path: Path) -> dict[str, Any]:
    from ...datasets.published.runs import published_runs
    from ..validation.table_fits import fit_peaks

    fit = fit_peaks(name, published_runs(path), f"--data {path}")
    base = _stored_calibration(name, fit.calibration.scope) or fit.calibration
    memory = fit.calibration.memory
    if memory is None:
        raise RuntimeError("peaks give constants of memory")
    return _save(base.with_memory(memory)) | fit.counts


def _stored_calibration(name: str, place: CalibrationScope) -> Calibration | None:
    """The stored calibration of that name, whose other half is kept.

    One fitted to other prices is replaced whole.

    Raises:
        InputError: it is for another device or stack, and would be lost.
    """
    from ..problem.stored_calibrations import (
        calibration_folder,
        calibration_scope,
        is_current,
        read_calibration,
        stored_names,
    )

    names = stored_names()
    if name not in names:
        return None
    stored = read_calibration(name)
    if calibration_scope(stored).in_any_format == place.in_any_format:
        if is_current(stored):
            return stored
        note(f"{name} was fitted to an older version of the pricing: nothing of it is kept")
        return None
    free = next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in names)
    where = calibration_folder() / f"{name}.json"
    allowed = f"a name of none that is for {stored.scope.in_any_format}, or without {where}"
    raise InputError("--name", name, allowed, free)


def _save(fitted: Calibration) -> dict[str, Any]:
    from ...spec.codec import content_hash
    from ..problem.stored_calibrations import save_calibration

    path = str(save_calibration(fitted))
    return {**asdict(fitted), "hash": content_hash(fitted), "path": path}


def _name(text: str | None) -> str:
    if text is None:
        raise InputError("--name", "nothing", "what the calibration shall be called")
    if not re.fullmatch(NAME_PATTERN, text) or text in RESERVED_NAMES:
        allowed = "1 to 64 letters, digits, dots, dashes or underscores, and not none or fit"
        raise InputError("--name", text, allowed)
    return text


def _path(text: str | None) -> Path:
    if text is None or not Path(text).is_file():
        typed = "nothing" if text is None else text
        raise InputError("--data", typed, "a CSV file of measured runs, or of peaks of memory")
    return Path(text)
