"""Validation and the catalogue of clusters from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...spec.errors import InputError
from ..catalogue.clusters import clusters_document
from ..problem.arguments import arguments_named
from ..validation.validate import validation_result
from .validation_handle import Validation


@arguments_named
def validate(data: str | Path | None = None, *, calibration: str = "none") -> Validation:
    """Compare predictions with measured runs, by source.

    Args:
        data: a table of runs or of memory peaks (CSV); the bundled runs if None.
        calibration: ``none``, ``fit`` or the name of a stored one.

    Raises:
        InputError: an unreadable file or row, or no such calibration.
    """
    table = None if data is None else Path(data).expanduser()
    if table is not None and not table.is_file():
        raise InputError("data", data, "a CSV file of runs or of peak memory")
    return Validation(result=validation_result(table, calibration))


@arguments_named
def clusters(name: str | None = None) -> dict[str, Any]:
    """Named devices, nodes and fabrics, as ``plan clusters --json`` writes.

    Args:
        name: limit the document to this device, node, fabric or cluster.

    Raises:
        InputError: no entry has this name.
    """
    return clusters_document(name)
