"""An explanation on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.report.report import MEMORY_TERMS, MemoryRow
from ...spec.units import GIB, MIB, format_bytes, format_seconds
from ..views.answer_text import resource_text, step_change_text
from ..views.explanation import Explanation
from ..views.report_text import (
    ROUNDING,
    checkpoint_text,
    cluster_text,
    excess_lines,
    interval_text,
    mfu_note,
    percent,
    question_text,
    shape_text,
    sources_text,
    stage_text,
)
from .console import columns
from .plan import print_assumptions

STAGES_SHOWN = 8


def print_explanation(out: Console, explanation: Explanation, rule: MemoryRule) -> None:
    """Print step terms, memory terms and their basis."""
    report, prediction = explanation.report, explanation.report.prediction
    out.print(question_text(report.plan))
    out.print(f"on {cluster_text(report)}")
    out.print(f"plan: {shape_text(report.plan)}")
    out.print()
    title = (
        f"step {interval_text(prediction)} (80 %), as stage {explanation.critical_stage} spends it"
    )
    out.print(Text(title, style="bold"))
    _print_time(out, explanation)
    _print_exchanges(out, explanation)
    for line in explanation.overlap_lines:
        out.print(line)
    if explanation.sent_text:
        out.print(explanation.sent_text)
    _print_sensitivities(out, explanation)
    out.print(
        f"model FLOPs: {percent(prediction.mfu)} of peak (MFU, {mfu_note(prediction)}), with "
        f"recomputation {percent(prediction.hfu)} (HFU); {prediction.flops_convention}"
    )
    out.print()
    _print_memory(out, explanation)
    _print_results(out, explanation)
    if prediction.checkpoint is not None:
        out.print(f"checkpoints: {checkpoint_text(prediction.checkpoint)}")
    for line in excess_lines(prediction.memory, rule):
        out.print(Text(f"does not fit: {line}", style="red"))
    out.print()
    out.print(f"prices: {sources_text(report)}; {report.provenance.stack}")
    tables = ", ".join(report.provenance.tables)
    out.print(f"calibration: {report.provenance.calibration}; tables: {tables}")
    print_assumptions(out, report.assumptions)


def _print_time(out: Console, explanation: Explanation) -> None:
    table = columns("term", "seconds", "share", "what it is", right=("seconds", "share"))
    for row in explanation.terms:
        if row["share"] > ROUNDING:
            name = str(row["term"]).replace("_", " ")
            cells = [name, f"{row['seconds']:.6g}", percent(row["share"]), row["meaning"]]
            table.add_row(*cells)
    total = sum(row["seconds"] for row in explanation.terms)
    table.add_row(
        "sum", f"{total:.6g}", percent(total / explanation.report.prediction.step_time_s), ""
    )
    out.print(table)
    for work in explanation.beside:
        lanes = ", ".join(f"{lane} {format_seconds(s)}" for lane, s in work.lanes.items())
        text = f"{work.technique}: {lanes} beside the computation, ".replace("_", " ")
        out.print(f"{text}{percent(work.hidden)} hidden; {format_seconds(work.in_line_s)} in line")
    busy = [f"{n}: {format_seconds(s)}" for n, s in enumerate(explanation.busy_s)]
    if len(busy) > 1:
        more = f", … {len(busy) - STAGES_SHOWN} more" if len(busy) > STAGES_SHOWN else ""
        out.print("busy by stage: " + ", ".join(busy[:STAGES_SHOWN]) + more)


def _print_exchanges(out: Console, explanation: Explanation) -> None:
    """Print how much of the experts' exchanges hides, by kind of layer."""
    for row in explanation.exchanges:
        ways = (
            ("forward", row.forward_s, row.forward_exposed_s),
            ("backward", row.backward_s, row.backward_exposed_s),
        )
        hidden = ", ".join(
            f"{format_seconds(max(0.0, whole - exposed))} of {format_seconds(whole)} {way}"
            for way, whole, exposed in ways
        )
        out.print(f"exchanges of layer {row.first_layer} ({row.layers} such): hidden {hidden}")
        if row.fullest != 1:
            out.print(f"  the fullest rank has {row.fullest:.3g} times the mean rank's rows")


def _print_sensitivities(out: Console, explanation: Explanation) -> None:
    rows = explanation.report.sensitivities
    table = columns("1 % more of", "step", "key of plan what-if", right=("step",))
    for row in sorted(rows, key=lambda s: (s.step_time_change, s.resource)):
        table.add_row(resource_text(row), step_change_text(row), row.resource)
    out.print(table)


def _print_results(out: Console, explanation: Explanation) -> None:
    """Print what the largest group of equal blocks may keep by name."""
    if not explanation.results:
        return
    first = max(explanation.results, key=lambda row: row.layers).first_layer
    rows = [row for row in explanation.results if row.first_layer == first]
    title = f"results of layer {first}, as --recompute ops:save=NAME,… keeps them"
    out.print(Text(f"{title} ({rows[0].layers} such layers)", style="bold"))
    heads = ("name", "or", "bytes a token", "a micro-batch", "kept")
    table = columns(*heads, right=heads[2:3])
    for row in rows:
        kept = {True: "yes", False: "runs again", None: ""}[row.kept]
        cells = (f"{row.bytes_per_token:.6g}", format_bytes(row.size_bytes), kept)
        table.add_row(row.name, row.alias, *cells)
    out.print(table)


def _head(row: MemoryRow, rows: list[MemoryRow]) -> str:
    return stage_text(row, rows) + ("" if row.tier == "hbm" else f" {row.tier}")


def _print_memory(out: Console, explanation: Explanation) -> None:
    rows = sorted(explanation.report.prediction.memory, key=lambda r: (-r.reserved_bytes, r.stage))
    shown = sorted(rows[:STAGES_SHOWN], key=lambda r: r.stage)
    unit, unit_name = (GIB, "GiB") if rows[0].capacity_bytes >= GIB else (MIB, "MiB")
    left_out = len(rows) - len(shown)
    more = f" (the {len(shown)} fullest of {len(rows)} stages)" if left_out else ""
    out.print(Text(f"memory a device at its peak, in {unit_name}{more}", style="bold"))
    heads = [_head(row, rows) for row in shown]
    table = columns("term", *heads, right=tuple(heads))
    for name in [*MEMORY_TERMS, *(n for n in rows[0].by if n not in MEMORY_TERMS)]:
        table.add_row(name, *[f"{row.by.get(name, 0) / unit:.3f}" for row in shown])
    table.add_row("sum = reserved", *[f"{row.reserved_bytes / unit:.3f}" for row in shown])
    table.add_row("allocated", *[f"{row.allocated_bytes / unit:.3f}" for row in shown])
    table.add_row("capacity", *[f"{row.capacity_bytes / unit:.3f}" for row in shown])
    out.print(table)
    free = min(row.capacity_bytes - row.reserved_bytes for row in rows)
    out.print(f"free on the fullest device: {format_bytes(max(0, free))}")
