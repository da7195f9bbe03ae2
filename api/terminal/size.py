"""The size of a training, and fine-tunings side by side, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ...spec.plan.shape_text import shape_text
from ...spec.units import format_count, format_duration, format_seconds
from ..size.fine_tuning import FineTuning
from ..size.size_point import DAY_S, SizePoint
from ..size.training_size import TrainingSize
from .console import bar_cells, columns

BAR = 16
SEARCHED, USUAL, COST = "searched", "usual", "cost"


def print_size(out: Console, found: TrainingSize) -> None:
    """Print the curve, or both, and the answer."""
    print_curve(out, CurveHead.of(found), found.points, found.answer)
    if found.weak_points:
        print_curve(out, CurveHead.of(found, weak=True), found.weak_points)
    if found.within_s is None and found.budget is None:
        out.print("with --within 30d or --budget B the points that decide are searched in full")
        return
    if found.answer is not None:
        point = found.answer
        text = f"{point.devices} devices are the smallest number found that meets the limits: "
        out.print(Text(text + _point_text(point, found.currency), style="bold"), overflow="fold")
        if point.plan is not None:
            out.print(f"plan: {shape_text(point.plan)}", overflow="fold")
    elif found.ruled_out:
        out.print(Text("no plan on these numbers of devices meets the limits: proven", style="red"))
    else:
        out.print(Text("no plan that was found meets the limits", style="red"))


class CurveHead(NamedTuple):
    """First line of a table; ``weak``: the batch of a device is fixed, not of a step."""

    model: str
    device: str
    tokens: int
    weak: bool = False

    @classmethod
    def of(cls, found: TrainingSize, weak: bool = False) -> CurveHead:
        """That of a curve; of both, the first is strong."""
        is_weak = weak or found.scaling == "weak"
        return cls(found.model, found.device, found.tokens, is_weak)

    def text(self, points: Sequence[SizePoint]) -> str:
        """The line."""
        size = next((p.problem.workload for p in points if p.problem is not None), None)
        each = "" if size is None else f"; {size.global_batch} x {size.seq_len} tokens a step"
        if self.weak:
            each = "" if size is None else f"; weak: a device's batch is fixed, x {size.seq_len}"
        return (
            f"{self.model} on {format_count(self.tokens)} tokens, by number of {self.device}{each}"
        )


def print_curve(
    out: Console,
    head: CurveHead,
    points: Sequence[SizePoint],
    answer: SizePoint | None = None,
) -> None:
    """Print a row for each number of devices."""
    out.print(head.text(points))
    currency = next((p.prediction.currency for p in points if p.prediction is not None), None)
    priced = currency is not None
    heads = ["devices", *(["batch"] if head.weak else []), "days", "at least"]
    heads += [*([COST] if priced else []), "MFU", "", "step", "plan"]
    right = ("devices", "batch", "days", "at least", COST, "MFU", "step")
    table = columns(*heads, right=right)
    most = max((p.prediction.mfu for p in points if p.prediction is not None), default=1.0)
    for point in points:
        style = "bold green" if answer is not None and point.devices == answer.devices else ""
        cells = _cells(point, priced, most)
        batch = "-" if point.problem is None else str(point.problem.workload.global_batch)
        table.add_row(cells[0], *([batch] if head.weak else []), *cells[1:], style=style)
    out.print(table)
    money = f"cost in {currency}; " if priced else ""
    out.print(
        f"{money}steps alone; no plan takes fewer days than 'at least' (proven); usual: the best "
        "of the usual uniform plans",
        overflow="fold",
    )


def _cells(point: SizePoint, priced: bool, most: float) -> list[str]:
    prediction, time_s = point.prediction, point.time_s
    least = "-" if point.problem is None else _days(point.least_time_s)
    if prediction is None or time_s is None or point.plan is None:
        return [str(point.devices), "-", least, *(["-"] if priced else []), "-", "", "-", point.why]
    kind = SEARCHED if point.searched else USUAL
    cost = "-" if point.cost is None else format_count(point.cost)
    bar = bar_cells()[0] * max(1, round(BAR * prediction.mfu / most))
    return [
        str(point.devices),
        _days(time_s),
        least,
        *([cost] if priced else []),
        f"{prediction.mfu:.1%}",
        bar,
        format_seconds(prediction.step_time_s),
        kind,
    ]


def _days(time_s: float) -> str:
    return f"{time_s / DAY_S:.3g}" if time_s < 1000 * DAY_S else f"{time_s / DAY_S:.0f}"


def _point_text(point: SizePoint, currency: str | None) -> str:
    parts = [] if point.time_s is None else [format_duration(point.time_s)]
    if point.cost is not None:
        parts.append(f"{format_count(point.cost)} {currency}")
    if point.prediction is not None:
        parts.append(f"MFU {point.prediction.mfu:.1%}")
    return ", ".join(parts)


def print_fine_tuning(out: Console, found: FineTuning) -> None:
    """Print the ways side by side."""
    size = next((p.problem.workload for p in found.points.values() if p.problem), None)
    each = "" if size is None else f", {size.global_batch} x {size.seq_len} a step"
    out.print(
        f"{found.model} fine-tuned on {format_count(found.tokens)} tokens{each}, {found.cluster}",
        overflow="fold",
    )
    priced = any(point.cost is not None for point in found.points.values())
    heads = ("", "hours", "at least", *(("cost",) if priced else ()), "MFU", "memory", "plan")
    table = columns(*heads, right=("hours", "at least", "cost", "MFU", "memory"))
    for name in found.trainable:
        table.add_row(*_way(name, found, priced))
    out.print(table)
    for name, why in found.refused.items():
        out.print(Text(f"{name} is refused: {why}", style="red"), overflow="fold")


def _way(name: str, found: FineTuning, priced: bool) -> list[str]:
    point = found.points.get(name)
    prediction = None if point is None else point.prediction
    if point is None or prediction is None or point.time_s is None or point.plan is None:
        why = "refused" if point is None else point.why
        return [name, "-", "-", *(["-"] if priced else []), "-", "-", why]
    size = max(row.reserved_bytes for row in prediction.memory if row.tier == "hbm")
    return [
        name,
        f"{point.time_s / 3600:.3g}",
        f"{point.least_time_s / 3600:.3g}",
        *(["-" if point.cost is None else format_count(point.cost)] if priced else []),
        f"{prediction.mfu:.1%}",
        f"{size / 2**30:.3g} GiB",
        shape_text(point.plan),
    ]
