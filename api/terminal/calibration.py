"""A fitted calibration on a terminal: constants, meanings, effects."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...spec.cluster.calibration import MEANINGS, MEMORY_MEANINGS
from ...spec.report.report import INTERVAL_LEVEL
from ...spec.units import GIB
from ..views.report_text import percent
from .console import columns, heading


def print_calibration(out: Console, document: dict[str, Any]) -> None:
    """Print the factors and the errors before and after."""
    rows = len(document["fitted_on"])
    out.print(
        f"{document['name']}: {document['device']} with {document['stack']} in "
        f"{document['products']}, fitted to {rows} of {document['rows_usable']} usable rows "
        f"({document['rows_read']} read)"
    )
    heading(out, "times the shipped seconds")
    table = columns("factor", "x", "of what", right=("x",))
    for name, meaning in MEANINGS.items():
        table.add_row(name, f"{document['factors'][name]:.3f}", meaning)
    out.print(table)
    heading(out, "median error of the step time")
    out.print(
        f"these rows: {percent(document['shipped_error'])} shipped, "
        f"{percent(document['fitted_error'])} fitted, {percent(document['left_out_error'])} each "
        "from the others"
    )
    held_out = document["held_out"]
    if held_out["rows"]:
        out.print(
            f"{held_out['rows']} other rows: {percent(held_out['shipped_median_ape'])} shipped, "
            f"{percent(held_out['median_ape'])} calibrated; intervals of {INTERVAL_LEVEL:.0%} hold "
            f"{percent(held_out['interval_holds'])}"
        )
    more = document["half_width"]
    out.print(
        f"interval of {INTERVAL_LEVEL:.0%}: from {percent(more / (1 + more))} less to "
        f"{percent(more)} more than predicted"
    )
    _print_end(out, document)


def print_memory_calibration(out: Console, document: dict[str, Any]) -> None:
    """Print the memory constants and the errors before and after."""
    memory, held_out = document["memory"], document["held_out"]
    rows = len(memory["fitted_on"])
    out.print(
        f"{document['name']}: memory on {document['device']} with {document['stack']}, fitted to "
        f"{rows} of {document['rows_usable']} usable rows ({document['rows_read']} read)"
    )
    heading(out, "against the shipped bytes")
    table = columns("constant", "value", "of what", right=("value",))
    for name, meaning in MEMORY_MEANINGS.items():
        value = memory["constants"][name]
        shown = f"{value / GIB:+.3f} GiB" if name == "library_bytes" else f"{value:.3f}"
        table.add_row(name, shown, meaning)
    out.print(table)
    heading(out, "median error of the peak")
    out.print(
        f"these rows: {percent(memory['shipped_error'])} shipped, "
        f"{percent(memory['fitted_error'])} fitted, {percent(memory['left_out_error'])} each "
        "from the others"
    )
    if held_out["rows"]:
        out.print(
            f"{held_out['rows']} other rows: {percent(held_out['shipped_median_ape'])} shipped, "
            f"{percent(held_out['median_ape'])} calibrated"
        )
    out.print(f"deviation of rows from it: {percent(memory['deviation'])}")
    _print_end(out, document)


def _print_end(out: Console, document: dict[str, Any]) -> None:
    out.print(f"stored: {document['path']}")
    out.print(f"next: plan simulate … --calibration {document['name']}")
