"""``plan validate``: predictions compared with published measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .output import check_targets, emit, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from ...costmodel.explain.accuracy import Pair


def validate_command(flags: dict[str, Any]) -> None:
    """Price a table of measured runs, by default the bundled one.

    Raises:
        InputError: no such file or calibration, an unreadable row, or a plot other than SVG.
    """
    from ..validation.validate import validation_result

    check_targets(json=flags["json_target"], plot=flags["plot"])
    plot = flags["plot"]
    if plot and not plot.endswith(".svg"):
        near = str(Path(plot).with_suffix(".svg"))
        raise InputError("--plot", plot, "a file ending in .svg", near)
    document, points = validation_result(_table(flags["data"]), flags["calibration"] or "none")
    if plot:
        write_file(plot, _drawing(document, points))

    def show(out: Console) -> None:
        from ..terminal.validation import print_validation

        print_validation(out, document)

    emit(document, flags["json_target"], show)


def _drawing(document: dict[str, Any], points: Mapping[str, Sequence[Pair]]) -> str:
    from ..html.validation_svg import validation_svg

    of_time = document["metric"] == "step_time"
    quantity, unit = ("step time", "seconds") if of_time else ("peak memory", "GiB")
    rows = sum(map(len, points.values()))
    title = f"{document['data']}, {rows} rows: {quantity}, calibration {document['calibration']}"
    return validation_svg(title, unit, points)


def _table(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.is_file():
        raise InputError("--data", text, "a CSV file of runs or of peak memory")
    return path
