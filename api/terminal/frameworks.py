"""Imported and exported plans of other frameworks on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ...spec.units import format_seconds

if TYPE_CHECKING:
    from ..frameworks.export_plan import ExportedPlan
    from ..frameworks.import_plan import ImportedPlan

MOST_IGNORED = 12


def print_imported(out: Console, read: ImportedPlan, path: str) -> None:
    """Print whose file was read, and which keys change nothing."""
    out.print(f"{path}: a configuration of {read.framework.title}")
    if read.ignored:
        shown = ", ".join(read.ignored[:MOST_IGNORED])
        more = len(read.ignored) - MOST_IGNORED
        rest = f" and {more} more" if more > 0 else ""
        out.print(f"change nothing here: {shown}{rest}", overflow="fold")


def print_exported(
    out: Console, made: ExportedPlan, folder: str, started: tuple[str, ...] = ()
) -> None:
    """Print the files, the launch line and what was lost; ``started`` start it on every node."""
    names = ", ".join((*made.files, *started))
    out.print(f"{made.framework.title}: wrote {names} in {folder}")
    where = "start on each node" if made.framework.by_node else "start"
    out.print(f"{where}: {made.launch}", overflow="fold")
    if made.unsaid:
        out.print(f"left to the script: {', '.join(made.unsaid)}")
    if not made.lost:
        out.print("nothing is lost: read again, the files are the same plan")
        return
    for change in made.lost:
        out.print(f"lost: {change.what} {change.given}; instead {change.instead}", overflow="fold")
    more = "more" if made.cost_s >= 0 else "less"
    out.print(
        f"cost: {format_seconds(abs(made.cost_s))} {more} a step, "
        f"{format_seconds(made.step_s)} after {format_seconds(made.given_step_s)}"
        + ("" if made.fits else "; it does not fit")
    )
