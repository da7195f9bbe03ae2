"""One verdict of many rows against a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu.stage import Verdict


def verdict_of_all(
    figures: Mapping[str, float],
    limits: Mapping[str, float],
    planned: Sequence[str],
    words: str,
    at_least: bool = False,
) -> Verdict | str:
    """Verdict of all rows: how many measured, how many pass, the worst.

    Args:
        figures: of the measured ones, by key.
        limits: at most, or at least, by key.
        planned: what is to be measured.
        words: a format of one figure.
        at_least: whether more is better.

    Returns:
        A miss where one misses. Where all that were measured meet it and others were not
        measured, only what is known, which is no verdict.
    """
    measured = [key for key in planned if key in figures]
    counted = f"{len(measured)} of {len(planned)} measured"
    if not measured:
        return counted
    beyond = {key: figures[key] / limits[key] * (-1 if at_least else 1) for key in measured}
    meeting = [key for key in measured if beyond[key] <= (-1 if at_least else 1)]
    worst = max(measured, key=lambda key: beyond[key])
    figure = f"{counted}, {len(meeting)} meet it; the worst {words.format(figures[worst])}: {worst}"
    if len(meeting) == len(measured) < len(planned):
        return figure
    values = {"by_kernel": {key: figures[key] for key in measured}, "planned": len(planned)}
    return Verdict(figure, len(meeting) == len(planned), values)
