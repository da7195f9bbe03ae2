"""Rows on what prices choose over held links, beside what was measured there."""

from __future__ import annotations

from collections.abc import Mapping

from harness.shapes import Row, judged

CHOSEN_WITHIN, STEP_WITHIN = 0.05, 0.15
Seconds = Mapping[str, float]
"""Of a step, by word."""


def chosen_row(name: str, predicted_s: Seconds, measured_s: Seconds) -> Row:
    """The word of least predicted seconds, beside that of least measured ones."""
    chosen, best = least(predicted_s), least(measured_s)
    longer = measured_s[chosen] / measured_s[best] - 1
    return judged(
        name,
        f"{chosen} beside {best}: {longer:+.1%}",
        f"within {CHOSEN_WITHIN:.0%}",
        longer <= CHOSEN_WITHIN,
        predicted_s=dict(predicted_s),
        measured_s=dict(measured_s),
    )


def error_row(name: str, predicted_s: Seconds, measured_s: Seconds) -> Row:
    """The words' largest error of predicted seconds, and how many are within the target."""
    errors = {word: predicted_s[word] / seconds - 1 for word, seconds in measured_s.items()}
    worst = max(errors, key=lambda word: abs(errors[word]))
    hits = sum(abs(error) <= STEP_WITHIN for error in errors.values())
    figure = f"{errors[worst]:+.1%}"
    if len(errors) > 1:
        figure = f"{hits} of {len(errors)}; farthest {worst} {figure}"
    return judged(
        name, figure, f"within {STEP_WITHIN:.0%}", hits == len(errors), error=errors[worst]
    )


def least(seconds: Seconds) -> str:
    """The word of least seconds."""
    return min(seconds, key=lambda word: seconds[word])
