"""A run on a terminal: its steps, and predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from ...executor.launch.run_text import stopped_text
from ...spec.plan.plan import plan_of
from ...spec.units import format_bytes, format_count, format_number, format_seconds
from ..execution.dry_run_process import NEEDS_TORCH
from ..views.report_text import MFU_NOTE, differs_by_convention, percent, shape_text
from ..views.stage_table import ranges, span
from .console import columns

STEPS_SHOWN = 20
COLLECTIVES_SHOWN = 8
MAX_LISTED_MEMBERS = 4
MIN_SHOWN_SHARE = 1e-6
"""Terms below this part of the step are rounding."""


def print_execution(out: Console, document: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """Print steps, and measured figures beside predicted ones."""
    measured, predicted = document["measured"], document["predicted"]
    _print_steps(out, measured.get("losses", []), steps)
    if stopped := document.get("stopped"):
        out.print(stopped_text(stopped), soft_wrap=True)
    table = columns("", "predicted", "measured", "difference", right=("predicted", "measured"))
    rate = "tokens_per_s_per_device"
    if "step_time_s" in measured:  # a run that was stopped at once has none
        _compare(table, "step", predicted["step_time_s"], measured["step_time_s"], format_seconds)
    if rate in measured:
        _compare(table, "tokens/s a device", predicted[rate], measured[rate], format_number)
    for share, name in _shown_shares(measured):
        _compare(table, name, predicted[share], measured[share], percent)
    if allocated := measured.get("allocated_bytes"):
        expected = _peak_stage_bytes(predicted, "hbm")
        _compare(table, "peak live bytes", expected, allocated, format_bytes)
    if hosted := measured.get("host_bytes"):
        _compare(
            table, "bytes on the host", _peak_stage_bytes(predicted, "host"), hosted, format_bytes
        )
    _compare_checkpoints(table, predicted, document)
    for level, sides in document.get("sent_bytes", {}).items():
        priced, sent = max(sides["predicted"]), max(sides["measured"])
        _compare(table, f"sent over {level.replace('_', ' ')}", priced, sent, format_bytes)
    for term in document.get("comparison", {}).get("terms", ()):
        if max(term["predicted_s"], term["measured_s"]) < MIN_SHOWN_SHARE * measured["step_time_s"]:
            continue
        label = "  " + term["term"].replace("_", " ")
        _compare(table, label, term["predicted_s"], term["measured_s"], format_seconds)
    if top := document.get("measured_top"):
        _print_top(out, top, document["calibration"])
    out.print(Text("predicted against measured", style="bold"))
    out.print(table)
    if "mfu" in measured:
        out.print(_mfu_formula(measured))
    for reports in document.get("techniques", {}).values():
        _print_arena(out, [report for report in reports if report and "arena_bytes" in report])
    if balance := measured.get("balance"):
        out.print(balance_text(balance), soft_wrap=True)
    if file := document.get("losses_file"):
        out.print(f"every step's loss: {file}", soft_wrap=True)
    if kernels := kernels_text(document.get("kernels", ())):
        out.print(kernels)
    if verified := document.get("verify"):
        out.print(
            f"against one process: losses differ by at most {verified['max_rel_loss_diff']:.1e}, "
            f"gradients by {verified['max_rel_grad_diff']:.1e} (relative)"
        )


def balance_text(balance: dict[str, list[float]]) -> str:
    """How evenly experts were loaded, and the losses that balance them, at the last step."""
    last = {name: values[-1] for name, values in balance.items()}
    return (
        f"experts: fullest over mean {last['fullest_over_mean']:.2f}; auxiliary loss "
        f"{last['auxiliary_loss']:.4g} and z-loss {last['z_loss']:.4g}, apart from the loss above"
    )


def _compare_checkpoints(
    table: Any, predicted: Mapping[str, Any], document: Mapping[str, Any]
) -> None:
    """Rows of saving and loading, where they were done."""
    price, found = predicted.get("checkpoint"), document.get("checkpoint", {}).get("measured", {})
    names = {"stall_s": "stall of a save", "end_to_end_s": "save to commit", "load_s": "load"}
    for key, name in names.items():
        if price and key in found:
            _compare(table, name, price[key], found[key], format_seconds)
    if price and "rank_bytes" in found:
        name = "most that a rank saves"
        _compare(table, name, price["rank_bytes"], found["rank_bytes"], format_bytes)


def _shown_shares(measured: dict[str, Any]) -> list[tuple[str, str]]:
    shares = {"mfu": f"MFU ({MFU_NOTE})", "mfu_causal": "MFU (causal halved)", "hfu": "HFU"}
    if not differs_by_convention(measured.get("mfu", 0.0), measured.get("mfu_causal")):
        del shares["mfu_causal"]
    return [(share, name) for share, name in shares.items() if share in measured]


def _mfu_formula(measured: dict[str, Any]) -> str:
    flops, peak = (format_count(measured[key]) for key in ("flops", "peak_flops_per_s"))
    return (
        f"MFU {percent(measured['mfu'])} ({MFU_NOTE}) = {flops} model FLOPs / "
        f"({format_seconds(measured['step_time_s'])} x {peak} FLOP/s, the peak of all devices)"
    )


def _print_top(out: Console, rows: list[dict[str, Any]], calibration: str) -> None:
    sizes = ("predicted", "measured", "corrected")
    table = columns("plan", "shape", *sizes, right=sizes)
    for row in rows:
        plan = plan_of(row["plan"], "plan")
        seconds = (format_seconds(row[f"{size}_s"]) for size in sizes)
        table.add_row(row["plan_hash"][:19], shape_text(plan), *seconds)
    out.print(Text(f"{len(rows)} plans run, the fastest first; its run follows", style="bold"))
    out.print(table)
    out.print(f"stored as calibration {calibration} (--calibration {calibration} prices by it)")


def _peak_stage_bytes(predicted: Mapping[str, Any], tier: str) -> int:
    rows = (row for row in predicted["memory"] if row["tier"] == tier)
    return max((int(row["allocated_bytes"]) for row in rows), default=0)


def _compare(table: Any, name: str, predicted: float, measured: float, show: Any) -> None:
    difference = f"{predicted / measured - 1:+.1%}" if measured > 0 else ""
    table.add_row(name, show(predicted), show(measured), difference)


def _print_steps(out: Console, losses: list[float], steps: list[dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = [*steps] or [
        {"step": n, "loss": loss} for n, loss in enumerate(losses, start=1)
    ]
    every = max(1, -(-len(rows) // STEPS_SHOWN))
    table = columns("step", "loss", "gradient norm", "seconds", right=("step", "loss"))
    for number, row in enumerate(rows):
        if number % every == 0 or number == len(rows) - 1:
            norm, time_s = row.get("gradient_norm"), row.get("time_s")
            table.add_row(
                str(row.get("step", number + 1)),
                f"{row['loss']:.4f}",
                _norm_text(row, norm),
                "" if time_s is None else f"{time_s:.4f}",
            )
    out.print(table)


def _norm_text(row: dict[str, Any], norm: float | None) -> str:
    if row.get("skipped"):
        return "overflowed, skipped"
    return "" if norm is None else f"{norm:.4f}"


def print_dry_run(out: Console, document: dict[str, Any]) -> None:
    """Print memory and process groups of a dry run, by rank."""
    out.print(
        f"would start {document['ranks']} ranks of {document['device']} "
        f"for {document['steps']} steps; nothing was run"
    )
    table = columns("stage", "ranks", "layers", "groups", right=("stage",))
    for stage in document["stages"]:
        groups = "; ".join(_group_text(group) for group in stage["groups"]) or "none"
        cells = (str(stage["stage"]), span(*stage["ranks"]), ranges(stage["layers"]), groups)
        table.add_row(*cells)
    out.print(table)
    if document["rehearsal"] is None:
        out.print(NEEDS_TORCH)
    else:
        _print_dry_run_stages(out, document["rehearsal"])
    if "addresses" in document:
        _print_addresses(out, document["addresses"])
    out.print(f"by hand: {document['command']}")


def _print_dry_run_stages(out: Console, rows: list[dict[str, Any]]) -> None:
    """Print bytes and messages of a rank of each stage class."""
    kinds = {"kept between steps": "resident_bytes", "peak": "peak_bytes"}
    if any(row.get("host_bytes") for row in rows):
        kinds["on the host"] = "host_bytes"
    table = columns("stages", *kinds, right=tuple(kinds))
    for row in rows:
        sizes = (format_bytes(row[key]) for key in kinds.values())
        table.add_row(ranges(row["stages"]), *sizes)
    out.print("live tensors of a rank, with the library's kernels:")
    out.print(table)
    right = ("ranks", "apart", "times", "bytes each")
    sent = columns("stages", "collective", *right, "format", right=right)
    for row in rows:
        for item in row["collectives"][:COLLECTIVES_SHOWN]:
            cells = (item["ranks"], item["stride"], item["count"])
            size = format_bytes(item["payload_bytes"])
            sent.add_row(ranges(row["stages"]), item["kind"], *map(str, cells), size, item["dtype"])
    out.print("what a rank sends most of in a step (all of it: --json):")
    out.print(sent)


def _print_arena(out: Console, reports: list[dict[str, Any]]) -> None:
    """Print how many requests of passes had their planned addresses."""
    if not reports:
        return
    served, unplanned = (sum(r[key] for r in reports) for key in ("served", "unplanned"))
    largest = max(report["arena_bytes"] for report in reports)
    out.print(
        f"planned addresses: {served} requests from arenas of up to {format_bytes(largest)}, "
        f"{unplanned} not as planned",
        soft_wrap=True,
    )


def _print_addresses(out: Console, addresses: dict[str, Any]) -> None:
    """Print the arena of each solution beside its live bytes."""
    table = columns("of", "requests", "live", "arena", "by", right=("requests", "live", "arena"))
    for row in addresses["solutions"]:
        of = f"stage {row['stage']}" if "stage" in row else f"ranks {ranges(row['ranks'])}"
        sizes = (format_bytes(row[key]) for key in ("live_bytes", "arena_bytes"))
        table.add_row(of, str(row["requests"]), *sizes, row["by"])
    out.print(f"planned addresses of a step's requests, {addresses['source']} (offsets: --json):")
    out.print(table)


def _group_text(group: dict[str, Any]) -> str:
    members = [_members_text(member) for member in group["members"]]
    shown = ", ".join("{" + text + "}" for text in members[:4])
    more = f", … {len(members) - 4} more" if len(members) > 4 else ""
    return f"{group['use']} of {group['size']}: {shown}{more}"


def _members_text(members: list[int]) -> str:
    steps = {after - before for before, after in pairwise(members)}
    if len(members) > MAX_LISTED_MEMBERS and len(steps) == 1 and steps != {1}:
        return f"{members[0]}, {members[1]} … {members[-1]}"
    return ranges(members)


def kernels_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format kernel choices by family; empty without choices.

    ``rows`` has one choice per shape; a family's choices that differ in shape alone are named once.
    """
    by_reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        name = _name(row, _picked_of(rows, row["family"]))
        by_reasons.setdefault(_reasons(row), {})[name] = None
    clauses = [", ".join(names) + reasons for reasons, names in by_reasons.items()]
    return f"kernels: {'; '.join(clauses)}" if clauses else ""


def _picked_of(rows: Sequence[dict[str, Any]], family: str) -> set[str]:
    return {row["picked"] for row in rows if row["family"] == family}


def _name(row: dict[str, Any], picked: set[str]) -> str:
    name = f"{row['family']} {row['picked']}"
    return f"{name} for {row['dtype']}" if len(picked) > 1 else name


def _reasons(row: dict[str, Any]) -> str:
    reasons = ", ".join(f"not {other}: {why}" for other, why in row["passed_over"].items())
    return f" ({reasons})" if reasons else ""
