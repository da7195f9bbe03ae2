"""A diagnosis on a terminal: waterfall, noise, changes, what to measure next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from ...spec.units import format_bytes, format_number, format_seconds
from ..diagnose.changes import RunChange
from ..diagnose.diagnosis import Diagnosis
from ..diagnose.kineto_trace import TracedStep, predicted_parts
from ..diagnose.step_noise import StepNoise
from ..diagnose.waterfall import AT_PEAK, UNEXPLAINED
from ..views.report_text import memory_text, percent, shape_text
from .console import bar_cells, columns, heading

BAR = 24
LEAST_SHARE = 0.001
"""Share of the step below which a bar is summed up with the other small ones."""
MOST_CHANGES = 6


def print_diagnosis(out: Console, found: Diagnosis) -> None:
    """Print a diagnosis within one screen."""
    run, bars = found.run, found.waterfall
    plan = found.report.plan
    work = plan.workload
    title = "a plan" if run.framework is None else f"of {run.framework.title}"
    out.print(
        f"{Path(run.name).name}: {title}; {plan.model.name}, {work.global_batch} x {work.seq_len} "
        f"tokens a step, {work.dtype.text}",
        overflow="fold",
    )
    out.print(f"plan: {shape_text(plan)}", overflow="fold")
    devices = sum(stage.device_count for stage in plan.program.stages)
    rate = work.tokens_per_step / bars.measured_s
    out.print(
        f"measured step {format_seconds(bars.measured_s)}, {format_number(rate / devices)} "
        f"tokens/s a device, MFU {percent(bars.mfu)} ({percent(bars.mfu_full)} with masked scores)",
        overflow="fold",
    )
    _print_noise(out, run.noise)
    _print_memory(out, found)
    _print_bars(out, found)
    _print_verdict(out, found)
    if found.trace is not None:
        _print_trace(out, found, found.trace)
    _print_changes(out, found)


def _print_noise(out: Console, noise: StepNoise | None) -> None:
    if noise is None:
        return
    each = "" if noise.averaged == 1 else f", in lines of up to {noise.averaged} steps"
    slow = "none slow"
    if noise.slow:
        named = ", ".join(str(item.step) for item in noise.slow[:4])
        slow = f"slow: {named} (up to {format_seconds(noise.slow[0].seconds)})"
    out.print(
        f"steps: {noise.steps} counted, {noise.left_out} left out{each}; p50 "
        f"{format_seconds(noise.p50_s)}, p99 {format_seconds(noise.p99_s)}; {slow}",
        overflow="fold",
    )


def _print_memory(out: Console, found: Diagnosis) -> None:
    run = found.run
    text = f"memory: {memory_text(found.peak_row)} reserved by our count"
    if not found.report.prediction.feasible:
        text += ", over what fits, though it ran"
    if run.peak_bytes is not None:
        text += f"; the log says {format_bytes(run.peak_bytes)} {run.peak_of} at most"
    out.print(text, overflow="fold")


def _print_bars(out: Console, found: Diagnosis) -> None:
    heading(out, "from the devices' peak to the measured step (adds up to 100 %)")
    table = columns("", "seconds", "share", "", "", right=("seconds", "share"))
    table.show_header = False
    small_s, small, bars = 0.0, 0.0, found.waterfall.bars
    for bar in bars:
        if abs(bar.share) < LEAST_SHARE and bar.term not in (AT_PEAK, UNEXPLAINED):
            small_s, small = small_s + bar.seconds, small + bar.share
            continue
        style = {AT_PEAK: "green", UNEXPLAINED: "red"}.get(bar.term, "")
        table.add_row(*_row(bar.term, bar.seconds, bar.share, bar.words), style=style)
    if small:
        table.add_row(*_row("the rest", small_s, small, "terms below a thousandth"))
    out.print(table)
    predicted_s = found.waterfall.predicted_s
    out.print(f"simulated step {format_seconds(predicted_s)}; {_explained_text(found)}")


def _explained_text(found: Diagnosis) -> str:
    return f"the configuration explains {max(0.0, found.waterfall.explained):.0%} of the loss"


def _row(term: str, seconds: float, share: float, words: str) -> tuple[str, str, str, str, str]:
    cell = bar_cells()[0] * round(abs(share) * BAR)
    sign = "-" if seconds < 0 else ""
    return (
        term.replace("_", " "),
        sign + format_seconds(abs(seconds)),
        f"{share:.1%}",
        cell,
        words,
    )


def _print_verdict(out: Console, found: Diagnosis) -> None:
    if not found.explains:
        out.print(Text("less than half: what follows rests on a part of the step", style="red"))
    for line in found.measure_next:
        out.print(Text.assemble(("measure next: ", "bold"), line), overflow="fold")


def _print_trace(out: Console, found: Diagnosis, trace: TracedStep) -> None:
    predicted = predicted_parts(found.report.prediction)
    heading(out, f"trace of one rank, {trace.steps} steps")
    table = columns("part", "traced", "simulated", right=("traced", "simulated"))
    rows = (
        ("computation", trace.computation_s, predicted["computation"]),
        ("communication and waiting", trace.communication_s, predicted["communication"]),
        ("idle", trace.idle_s, predicted["idle"]),
    )
    for name, traced_s, predicted_s in rows:
        table.add_row(name, format_seconds(traced_s), format_seconds(predicted_s))
    out.print(table)


def _print_changes(out: Console, found: Diagnosis) -> None:
    changes = found.changes
    if changes.why_none:
        out.print(f"no changes are ranked: {changes.why_none}", overflow="fold")
        return
    if not changes.alone:
        out.print(f"no change of one axis gains ({changes.priced} plans simulated)")
        return
    starred = "; * a checkpoint must be converted" if _converts(found) else ""
    text = f"changes by gain, of {changes.priced} plans simulated: the same mathematics{starred}"
    heading(out, text)
    table = columns("gain", "step", "MFU", "memory", "change", right=("gain", "step", "memory"))
    for change in changes.alone[:MOST_CHANGES]:
        table.add_row(*_change_row(change, ""))
    if changes.together is not None:
        table.add_row(*_change_row(changes.together, "together: "), style="bold")
    out.print(table)
    best = changes.together or changes.alone[0]
    if best.flags:
        text = "  ".join(map(str, best.flags))
        out.print(Text.assemble(("write: ", "bold"), text), overflow="fold")
    if best.conversion:
        out.print(Text.assemble(("checkpoint: ", "bold"), f"must be converted: {best.conversion}"),
                  overflow="fold")  # fmt: skip


def _converts(found: Diagnosis) -> bool:
    shown = (*found.changes.alone[:MOST_CHANGES], found.changes.together)
    return any(change is not None and change.conversion for change in shown)


def _change_row(change: RunChange, head: str) -> tuple[str, str, str, str, str]:
    words = head + ", ".join(map(str, change.axes))
    if change.conversion:
        words += " *"
    return (
        f"+{change.gain:.1%}",
        format_seconds(change.step_s),
        f"{change.mfu:.1%}",
        format_bytes(change.memory_bytes),
        words,
    )
