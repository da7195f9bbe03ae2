"""A training's size, and fine-tunings, as HTML for a notebook, without scripts, escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...spec.units import format_count
from .report import html_table
from .size_svg import size_svg
from .text import escape, unbroken

COST, COMMON = "cost", ("MFU", "plan")

NOTHING = "-"
"""A figure that there is not."""


def size_html(found: Mapping[str, Any]) -> str:
    """The curve, the answer and the points, of a TrainingSize's or FineTuning's document."""
    parts = _ways(found) if "ways" in found else _curve(found)
    return f'<div style="font-family:sans-serif">{"".join(parts)}</div>'


def _curve(found: Mapping[str, Any]) -> list[str]:
    parts = [f"<p>{escape(answer_text(found))}</p>", size_svg(found), _points(found, "points")]
    if found["weak_points"]:
        parts.append("<p>weak scaling: the batch of a device is fixed</p>")
        parts.append(_points(found, "weak_points"))
    return parts


def _points(found: Mapping[str, Any], curve: str) -> str:
    heads = ("devices", "days", "at least", COST, *COMMON)
    rows = [
        [str(point["devices"]), _figure(point["days"]), _figure(point["least_days"]),
         _cost(point["cost"], found["currency"]), *_rest(point)]
        for point in found[curve]
    ]  # fmt: skip
    return _table(heads, rows)


def answer_text(found: Mapping[str, Any]) -> str:
    """The answer of a TrainingSize's document in one sentence."""
    if found["answer"] is not None:
        return f"{found['answer']} devices are the smallest number found that meets the limits"
    if found["within_s"] is None and found["budget"] is None:
        return "no limits were given: within and budget name the smallest number that meets them"
    if found["ruled_out"]:
        return "no plan on these numbers of devices meets the limits: proven"
    return "no plan that was found meets the limits"


def _ways(found: Mapping[str, Any]) -> list[str]:
    tokens = format_count(found["tokens"])
    head = f"{found['model']} fine-tuned on {tokens} tokens, {found['cluster']}"
    heads = ("way", "hours", COST, *COMMON)
    rows = [
        [escape(way["name"]), _figure(way["hours"]), _cost(way.get("cost"), ""), *_rest(way)]
        for way in found["ways"]
    ]
    return [f"<p>{escape(head)}</p>", _table(heads, rows)]


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    """A table, without costs where nothing has one."""
    at = heads.index(COST)
    if any(row[at] != NOTHING for row in rows):
        return html_table(heads, rows)
    return html_table(heads[:at] + heads[at + 1 :], [row[:at] + row[at + 1 :] for row in rows])


def _rest(point: Mapping[str, Any]) -> list[str]:
    mfu, shape = point.get("mfu"), point.get("shape")
    return [NOTHING if mfu is None else f"{mfu:.1%}", escape(shape or point["why"])]


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _cost(value: float | None, currency: str | None) -> str:
    return NOTHING if value is None else unbroken(f"{format_count(value)} {currency or ''}".strip())
