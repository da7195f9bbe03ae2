"""A diagnosis as HTML for a notebook, without scripts, escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...spec.units import format_bytes, format_seconds
from .report import html_table
from .text import escape, unbroken
from .waterfall_svg import waterfall_svg

HEADS = ("gain", "step", "MFU", "memory", "change", "checkpoint")
MOST_CHANGES = 6


def diagnosis_html(found: Mapping[str, Any]) -> str:
    """The waterfall, what to measure next, and changes by gain, of a Diagnosis' document."""
    bars = found["waterfall"]
    framework = found["framework"] or "a plan"
    head = (
        f"<p><b>{escape(found['source'])}</b>, {escape(framework)}: measured step "
        f"{format_seconds(bars['measured_s'])}, simulated {format_seconds(bars['predicted_s'])}, "
        f"MFU {bars['mfu']:.1%}; the configuration explains {max(0.0, bars['explained']):.0%} "
        "of the loss</p>"
    )
    parts = [head, waterfall_svg(found), _noise(found["noise"]), _next(found), _changes(found)]
    return f'<div style="font-family:sans-serif">{"".join(parts)}</div>'


def _noise(noise: Mapping[str, Any] | None) -> str:
    if noise is None:
        return ""
    return (
        f"<p>{noise['steps']} steps: p50 {format_seconds(noise['p50_s'])}, p99 "
        f"{format_seconds(noise['p99_s'])}, {len(noise['slow'])} slow</p>"
    )


def _next(found: Mapping[str, Any]) -> str:
    lines = [f"<li>{escape(line)}</li>" for line in found["measure_next"]]
    return f"<p>measure next:</p><ul>{''.join(lines)}</ul>" if lines else ""


def _changes(found: Mapping[str, Any]) -> str:
    changes = found["changes"]
    if changes["why_none"]:
        return f"<p>no changes are ranked: {escape(changes['why_none'])}</p>"
    rows = [_row(change, "") for change in changes["alone"][:MOST_CHANGES]]
    if changes["together"] is not None:
        rows.append(_row(changes["together"], "together: "))
    if not rows:
        return f"<p>no change of one axis gains ({changes['priced']} plans simulated)</p>"
    return html_table(HEADS, rows) + _written(changes["together"] or changes["alone"][0])


def _written(change: Mapping[str, Any]) -> str:
    """Keys that the best change writes in the framework's file."""
    if not change["flags"]:
        return ""
    lines = [f"{item['key']} {item['was']} → {item['now']}" for item in change["flags"]]
    return f"<p>write: {escape('; '.join(lines))}</p>"


def _row(change: Mapping[str, Any], head: str) -> list[str]:
    words = ", ".join(f"{c['axis']} {c['was']} → {c['now']}" for c in change["changes"])
    conversion = change["checkpoint_conversion"]
    return [
        f"+{change['gain']:.1%}",
        unbroken(format_seconds(change["step_time_s"])),
        f"{change['mfu']:.1%}",
        unbroken(format_bytes(change["memory_bytes"])),
        escape(head + words),
        escape(f"converted: {conversion}" if conversion else "as it is"),
    ]
