"""Python handle of a run: its document, its steps, a picture of its losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ...executor.launch.run_text import stopped_text
from ...spec.units import format_number, format_seconds
from ..html.report import html_table
from ..views.report_text import percent
from .frames import frame

if TYPE_CHECKING:
    from .plots.canvas import Picture


class RunResult(dict[str, Any]):
    """The ``execute`` document, as a notebook shows it.

    Args:
        document: of the contract.
        events: of its steps; None to number its losses.
    """

    def __init__(
        self, document: Mapping[str, Any], events: Iterable[Mapping[str, Any]] | None = None
    ) -> None:
        super().__init__(document)
        self.steps = _numbered(document) if events is None else [_row(event) for event in events]

    def to_frame(self) -> Any:
        """Return a DataFrame, one row per step of this run.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.steps)

    def plot(self) -> Picture:
        """Draw the loss over the steps.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.losses import loss_picture

        steps, losses = ([row[name] for row in self.steps] for name in ("step", "loss"))
        return loss_picture(steps, losses)

    def _repr_html_(self) -> str:
        """Show what the run came to, beside its prediction."""
        measured, predicted = self["measured"], self["predicted"]
        rows = [
            ["step", *(format_seconds(part["step_time_s"]) for part in (predicted, measured))],
            [
                "tokens/s a device",
                *(format_number(part["tokens_per_s_per_device"]) for part in (predicted, measured)),
            ],
        ]
        if "mfu" in measured:
            rows.append(["MFU", percent(predicted["mfu"]), percent(measured["mfu"])])
        said = _losses_text(self.steps)
        if "stopped" in self:
            said = f"{said}; {stopped_text(self['stopped'])}"
        table = html_table(("", "predicted", "measured"), rows)
        return f"<div><p>{escape(said)}</p>{table}</div>"


def _row(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("step", "loss", "gradient_norm", "time_s")}


def _numbered(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Losses of a document by step, after those of the run that it resumed."""
    first = document.get("checkpoint", {}).get("resumed", {}).get("step", 0) + 1
    losses = document["measured"].get("losses", [])
    return [{"step": n, "loss": loss} for n, loss in enumerate(losses, first)]


def _losses_text(steps: list[dict[str, Any]]) -> str:
    if not steps:
        return "no step"
    first, last = steps[0], steps[-1]
    return (
        f"steps {first['step']} to {last['step']}: loss {first['loss']:.4f} to {last['loss']:.4f}"
    )
