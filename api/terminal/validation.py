"""Predictions beside measured runs on a terminal, by source."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...spec.units import GIB
from ..views.report_text import percent
from .console import columns, heading

NONE = "-"
NO_FIT = "no constant was fitted to these figures"
FIT = "up to ten rows of each {} of a source, at most half of them, were fitted and are not scored"
PLACES = {"step_time": "device, stack and format", "peak_memory": "device and stack"}
STORED = "rows that it was fitted to are not scored"
SHOWN_REASONS = 8
COUNTS = {
    "allocator_peak": "the allocator's peak (allocated, and workspaces)",
    "reserved": "what the allocator reserves (reserved less context)",
    "driver": "what the driver sees, nvidia-smi (reserved)",
}
"""What a source prints, and what of ours it is held against."""


def print_validation(out: Console, document: dict[str, Any]) -> None:
    """Print errors by source, intervals, and reasons for skipped rows."""
    read, priced = document["rows_read"], document["rows_priced"]
    metric = document["metric"].replace("_", " ")
    how = {"none": NO_FIT, "fit": FIT.format(PLACES[document["metric"]])}
    out.print(
        f"{document['data']}: {metric}, {priced} of {read} rows priced, calibration "
        f"{document['calibration']}: {how.get(document['calibration'], STORED)}"
    )
    if document["metric"] == "step_time":
        _print_times(out, document)
    else:
        _print_memory(out, document)
    _print_skipped(out, document["rows_skipped"])


def _print_times(out: Console, document: dict[str, Any]) -> None:
    heading(
        out,
        "error of the step time (baselines: one MFU fitted to the same rows; 6·N·tokens with the "
        "pipeline's bubble)",
    )
    numbers = ("rows", "median", "mean", "p90", "signed", "one MFU", "6·N", "holds", "±")
    table = columns("source", *numbers, right=numbers)
    for name, row in (*document["by_source"].items(), ("all", document)):
        table.add_row(name, *_errors(row), *_interval(row))
    out.print(table)
    out.print(
        "median, mean, p90 of |error|; signed: median error, + is too slow; holds: share of the "
        "rows inside their interval; ±: half of it on average"
    )
    _print_order(out, document["by_source"])
    interval = document["interval"]
    if interval["holds"] is not None:
        out.print(
            f"intervals of {interval['level']:.0%} hold {_share(interval['holds'])} of the rows, "
            f"± {_share(interval['mean_half_width'])} on average"
        )


def _print_order(out: Console, by_source: dict[str, Any]) -> None:
    """Print rank correlations of layouts, for sources that have groups."""
    grouped = {name: row for name, row in by_source.items() if row["groups"]}
    if not grouped:
        return
    heading(out, "order of the layouts of one question, in groups of five or more")
    numbers = ("rank", "regret", "groups")
    table = columns("source", *numbers, right=numbers)
    for name, row in grouped.items():
        regret, groups = _share(row["top1_regret"]), str(row["groups"])
        table.add_row(name, _number(row["spearman"]), regret, groups)
    out.print(table)
    out.print("rank: Spearman's; regret of the layout predicted fastest")


def _interval(row: dict[str, Any]) -> list[str]:
    return [_share(row["interval"][key]) for key in ("holds", "mean_half_width")]


def _print_memory(out: Console, document: dict[str, Any]) -> None:
    heading(out, "error of the peak memory (baseline: parameters, gradients, optimizer states)")
    numbers = ("rows", "median", "mean", "p90", "signed", "static")
    counts = ("out of memory", "false fit", "false OOM")
    table = columns("source", *numbers, *counts, right=(*numbers, *counts))
    for name, row in (*document["by_source"].items(), ("all", document)):
        ends = (str(row[key]) for key in ("out_of_memory", "false_fit", "false_oom"))
        table.add_row(name, *_errors(row), *ends)
    out.print(table)
    out.print(
        "false fit: said to fit, and ran out of memory; false OOM: said not to, and ran; both by "
        "the bound that plans have to keep"
    )
    for name, row in document["by_source"].items():
        if row["rows_priced"]:
            _print_source(out, name, row)


def _print_source(out: Console, name: str, row: dict[str, Any]) -> None:
    """Print a source's row counts, assumptions and calibrations."""
    counted = ", ".join(f"{n} x {COUNTS[kind]}" for kind, n in row["counted"].items())
    out.print()
    out.print(f"{name} counts {counted}")
    assumed = ", ".join(f"{path} ({n})" for path, n in row["assumed_fields"].items())
    out.print(f"assumed: {assumed or 'nothing'}")
    if row["fitted_on"]:
        out.print(f"fitted on {', '.join(row['fitted_on'])}")
    for scope, constants in row["factors"].items():
        gib = constants["library_bytes"] / GIB
        out.print(
            f"{scope}: states x {constants['states']:.3f}, activations x "
            f"{constants['activations']:.3f}, libraries {gib:+.3f} GiB"
        )


def _errors(row: dict[str, Any]) -> list[str]:
    cells = [_share(row[name]) for name in ("median_ape", "mape", "p90_ape")]
    signed = row["signed_median"]
    baselines = (baseline["median_ape"] for baseline in row["baselines"].values())
    shown = NONE if signed is None else f"{signed * 100:+.1f} %"
    return [f"{row['rows_priced']}/{row['rows_read']}", *cells, shown, *map(_share, baselines)]


def _print_skipped(out: Console, skipped: dict[str, int]) -> None:
    if not skipped:
        return
    heading(out, "rows that were left out")
    table = columns("rows", "why", right=("rows",))
    by_count = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    for why, count in by_count[:SHOWN_REASONS]:
        table.add_row(str(count), why)
    out.print(table)
    more = by_count[SHOWN_REASONS:]
    if more:
        out.print(f"and {sum(n for _, n in more)} for {len(more)} more reasons: --json - has all")


def _share(value: float | None) -> str:
    return NONE if value is None else percent(value)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"
