"""Lines that a run prints where there is no terminal, and in a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def step_line(event: Mapping[str, Any]) -> str:
    """A step's number, loss, gradient norm and seconds."""
    return "step {step}  loss {loss:.4f}  {norm}  {time_s:.3f} s".format(
        **event, norm=_norm_text(event["gradient_norm"])
    )


def _norm_text(norm: float | None) -> str:
    return "overflowed, skipped" if norm is None else f"gradient norm {norm:.4f}"


def stopped_text(stopped: Mapping[str, Any]) -> str:
    """Which step a run was stopped after, and what was saved.

    ``stopped``: of the run's result.
    """
    step, steps, name, folder = (stopped[key] for key in ("step", "steps", "signal", "saved"))
    saved = (
        "nothing was saved (--checkpoint DIR keeps runs)"
        if folder is None
        else f"saved in {folder}"
    )
    return f"stopped by {name} after step {step} of {steps}; {saved}"
