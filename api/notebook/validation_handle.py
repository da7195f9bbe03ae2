"""Python handle of a validation: scores, a DataFrame, a plot."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ..html.report import html_table
from ..validation.validate import ValidationResult
from ..views.report_text import percent
from .frames import frame

if TYPE_CHECKING:
    from .plots.canvas import Picture

HEADS = ("source", "rows", "median", "mean", "p90", "signed")


@dataclass(frozen=True, kw_only=True, repr=False)
class Validation:
    """Prediction errors, over all rows and by source."""

    result: ValidationResult

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan validate --json`` writes."""
        return self.result.document

    def to_frame(self) -> Any:
        """Return a DataFrame of priced runs, predicted and measured (s or GiB).

        Raises:
            InputError: pandas is not installed.
        """
        return frame(
            {"source": name, "predicted": predicted, "measured": measured}
            for name, pairs in self.result.points.items()
            for predicted, measured in pairs
        )

    def plot(self) -> Picture:
        """Predicted against measured, one color per source.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.validations import validation_picture

        return validation_picture(self.result)

    def __repr__(self) -> str:
        document = self.result.document
        what = "step time" if document["metric"] == "step_time" else "peak memory"
        rows = f"{document['rows_priced']} of {document['rows_read']} rows"
        error = "none priced" if document["median_ape"] is None else percent(document["median_ape"])
        return f"<Validation {document['data']}: {what}, {rows}, median error {error}>"

    def _repr_html_(self) -> str:
        """Show errors by source in a notebook."""
        document = self.result.document
        named = [*document["by_source"].items(), ("all", document)]
        rows = [
            [
                escape(name),
                f"{row['rows_priced']}/{row['rows_read']}",
                *(_share(row[key]) for key in ("median_ape", "mape", "p90_ape")),
                "-" if row["signed_median"] is None else f"{100 * row['signed_median']:+.1f} %",
            ]
            for name, row in named
        ]
        return f"<div><p>{escape(repr(self)[1:-1])}</p>{html_table(HEADS, rows)}</div>"


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)
