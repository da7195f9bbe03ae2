"""The page's view of a run: its losses by step, as few points as a picture shows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...spec.errors import InputError

MAX_POINTS = 600
"""Points of the picture; each stands for as many steps, by their mean."""


def run_view(steps: Sequence[int], losses: Sequence[float]) -> dict[str, Any]:
    """The view of a run.

    Returns:
        ``{title, note, steps, losses}``: the last step and the mean loss of each point.
    """
    every = max(1, math.ceil(len(losses) / MAX_POINTS))
    starts = range(0, len(losses), every)
    means = [sum(part) / len(part) for part in (losses[n : n + every] for n in starts)]
    shown = [steps[min(n + every, len(steps)) - 1] for n in starts]
    return {
        "title": f"loss {losses[0]:.4f} to {losses[-1]:.4f} in steps {steps[0]} to {steps[-1]}",
        "note": f"each point is the mean of {every} steps" if every > 1 else "",
        "steps": shown,
        "losses": means,
    }


def run_of_document(document: Any) -> dict[str, Any] | None:
    """The run that a report holds under ``execute``, if any."""
    ran = document.get("execute") if isinstance(document, dict) else None
    if not isinstance(ran, Mapping):
        return None
    losses = ran.get("measured", {}).get("losses")
    if not isinstance(losses, list) or not all(isinstance(loss, float) for loss in losses):
        return None
    first = ran.get("checkpoint", {}).get("resumed", {}).get("step", 0) + 1
    return run_view(range(first, first + len(losses)), losses) if losses else None


def run_of_file(text: str, where: str) -> dict[str, Any]:
    """The run in the text of a ``losses.csv``.

    Raises:
        InputError: not such a file, or none of its steps has a loss.
    """
    try:
        rows = [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(io.StringIO(text))]
    except (KeyError, TypeError, ValueError, csv.Error):
        rows = []
    finite = [(step, loss) for step, loss in rows if math.isfinite(loss)]
    if not finite:
        allowed = "the losses.csv that a run keeps: columns step and loss, a row a step"
        raise InputError("--losses", where, allowed)
    return run_view([step for step, _ in finite], [loss for _, loss in finite])
