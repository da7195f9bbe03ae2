"""Python handle of two plans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..html.comparison import comparison_html
from ..views.comparison import Comparison
from ..views.comparison_text import verdict
from .frames import frame

if TYPE_CHECKING:
    from .plots.canvas import Picture


class ComparisonHandle(Comparison):
    """Two plans: terms, a DataFrame, a report in a notebook."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan compare --json`` writes."""
        return self.to_document()

    def to_frame(self) -> Any:
        """Return a DataFrame of seconds and bytes, one row per term.

        Raises:
            InputError: pandas is not installed.
        """
        kinds = (("s", self.terms), ("bytes", self.memory))
        return frame(
            {"unit": unit, "term": p.term, "first": p.first, "second": p.second, "by": p.by}
            for unit, pairs in kinds
            for p in pairs
        )

    def plot(self) -> Picture:
        """Draw the steps from the first plan's seconds to the second's.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.comparisons import comparison_picture

        return comparison_picture(self)

    def __repr__(self) -> str:
        return f"<ComparisonHandle {verdict(self)}>"

    def _repr_html_(self) -> str:
        return comparison_html(self)
