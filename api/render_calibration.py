"""A fitted calibration on a terminal: its factors, what they mean, and what they change."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ..spec.calibration import MEANINGS
from ..spec.report import INTERVAL_LEVEL
from .render_console import columns, heading
from .render_rows import percent


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
    held = document["held_out"]
    if held["rows"]:
        out.print(
            f"{held['rows']} other rows: {percent(held['shipped_median_ape'])} shipped, "
            f"{percent(held['median_ape'])} calibrated; intervals of {INTERVAL_LEVEL:.0%} hold "
            f"{percent(held['interval_holds'])}"
        )
    more = document["half_width"]
    out.print(
        f"interval of {INTERVAL_LEVEL:.0%}: from {percent(more / (1 + more))} less to "
        f"{percent(more)} more than predicted"
    )
    out.print(f"stored: {document['path']}")
    out.print(f"next: plan simulate … --calibration {document['name']}")
