"""A plan as a drawing: terms of its step, layers and memory of its stages.

Shapes have no format yet: :func:`svg.drawing_svg` and ``notebook.plots.drawing`` write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...spec.report.report import BREAKDOWN_TERMS, MemoryRow, Report
from ...spec.units import format_seconds
from ..views.layer_table import LayerRow, layer_rows
from ..views.report_text import (
    cluster_text,
    half_width_text,
    memory_text,
    mfu_text,
    peak_memory_row,
    percent,
    question_text,
    shape_text,
    terms,
)
from ..views.stage_table import stage_rows
from .svg import COLOURS, Box, Drawing, Label, Shape

WIDTH, MARGIN = 1000.0, 24.0
ROW, BAR = 30.0, 20.0
"""Of a stage or a line of a legend, and of the bar in it; pixels."""
LAYERS, MEMORY = (150.0, 500.0), (680.0, 150.0)
"""Left end and width of the bars of layers and of memory; pixels."""
COLUMNS, MAX_STAGES, MAX_KINDS = 4, 24, 12
CHARACTER = 6.6
"""Width of a character of a label's usual size; pixels."""
INK, PALE, TRACK = "#222222", "#5b6770", "#e6e9ee"
GOOD, TIGHT, OVER = "#1a7f4b", "#946200", "#c0262d"
LIGHT = (COLOURS[4], COLOURS[5])
"""Colors on which white cannot be read."""
Kind = tuple[str, str, str, str]


class _Run(NamedTuple):
    stage: int
    first: int
    last: int
    kind: Kind
    part: str

    @property
    def layers(self) -> int:
        return self.last - self.first + 1


def plan_drawing(report: Report) -> Drawing:
    """Draw a plan: question, strategy, terms of the step, a row for each stage."""
    runs = _runs(report)
    kinds = list(dict.fromkeys(run.kind for run in runs))
    shapes, y = list(_headline(report)), 124.0
    for draw in (_terms, _stages, _kinds):
        y, drawn = draw(report, runs, kinds, y)
        shapes += drawn
        y += 18
    return Drawing(width=WIDTH, height=y, title=question_text(report.plan), shapes=tuple(shapes))


def _headline(report: Report) -> Iterator[Shape]:
    prediction = report.prediction
    memory = memory_text(peak_memory_row(prediction))
    verdict = "" if prediction.feasible else ", does not fit"
    step = f"step {format_seconds(prediction.step_time_s)} {half_width_text(prediction)}"
    figures = f"{step}; {mfu_text(prediction)}; fullest memory {memory}{verdict}"
    yield _label(34, question_text(report.plan), size=17)
    yield _label(56, f"on {cluster_text(report)}", colour=PALE)
    yield _label(77, shape_text(report.plan))
    yield _label(98, figures, colour=INK if prediction.feasible else OVER)


def _label(y: float, text: str, size: int = 12, colour: str = INK, x: float = MARGIN) -> Label:
    most = int((WIDTH - MARGIN - x) / (CHARACTER * size / 12))
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return Label(x=x, y=y, text=shown, size=size, colour=colour)


def _terms(
    report: Report, runs: list[_Run], kinds: list[Kind], y: float
) -> tuple[float, list[Shape]]:
    """The step's terms, end to end, and their names."""
    shapes: list[Shape] = [_label(y, "Where the step goes", size=14)]
    x, top = MARGIN, y + 10
    rows = terms(report.prediction)
    for place, (name, _, share) in enumerate(rows):
        colour, opacity = _term_colour(name.replace(" ", "_"))
        width = share * (WIDTH - 2 * MARGIN)
        shapes.append(Box(x=x, y=top, width=width, height=26, colour=colour, opacity=opacity))
        x += width
        left, line = _column(place), top + 48 + (place // COLUMNS) * 20
        shapes.append(Box(x=left, y=line - 10, width=11, height=11, colour=colour, opacity=opacity))
        shapes.append(_label(line, f"{name} {percent(share)}", x=left + 17))
    return top + 48 + (len(rows) - 1) // COLUMNS * 20 + 14, shapes


def _column(place: int) -> float:
    return MARGIN + (place % COLUMNS) * (WIDTH - 2 * MARGIN) / COLUMNS


def _term_colour(term: str) -> tuple[str, float]:
    number = BREAKDOWN_TERMS.index(term) if term in BREAKDOWN_TERMS else len(BREAKDOWN_TERMS)
    return COLOURS[number % len(COLOURS)], 1.0 if number < len(COLOURS) else 0.5


def _runs(report: Report) -> list[_Run]:
    """Runs of layers under one strategy; of several device groups in a stage, the first."""
    rows = layer_rows(report.plan)
    leading = {row.stage: row.group for row in reversed(rows)}
    found: list[_Run] = []
    for row in rows:
        if row.group != leading[row.stage]:
            continue
        run = _run(row)
        last = found[-1] if found else None
        joined = last is not None and (last.stage, last.part, last.kind) == (
            run.stage, run.part, run.kind)  # fmt: skip
        if last is not None and joined and last.last + 1 == run.first:
            found[-1] = last._replace(last=run.last)
        else:
            found.append(run)
    return found


def _run(row: LayerRow) -> _Run:
    first, _, last = row.layers.partition("-")
    kind = (row.tp, row.shard, row.recompute, row.techniques)
    return _Run(int(row.stage), int(first), int(last or first), kind, row.part)


def _stages(
    report: Report, runs: list[_Run], kinds: list[Kind], y: float
) -> tuple[float, list[Shape]]:
    """A row for each stage: its devices, its layers, its memory."""
    stages = report.plan.program.stages
    fullest = {n: _fullest(report, n) for n in range(len(stages))}
    devices = {int(row.stage): row.devices for row in stage_rows(report.plan, report.prediction)
               if row.stage}  # fmt: skip
    sizes = [sum(run.layers for run in runs if run.stage == n) for n in range(len(stages))]
    heads = ("stage: devices", MARGIN), ("layers", LAYERS[0]), ("memory of a device", MEMORY[0])
    shapes: list[Shape] = [_label(y, "Stages", size=14)]
    shapes += [_label(y + 22, text, colour=PALE, x=x) for text, x in heads]
    top = y + 30
    for n in range(min(len(stages), MAX_STAGES)):
        line = top + n * ROW
        label = f"{n}: {devices.get(n, '')}"[:20]
        shapes.append(_label(line + 15, label))
        inside = [run for run in runs if run.stage == n]
        shapes += _layers(inside, kinds, LAYERS[1] / max(sizes), line)
        shapes += _memory(fullest[n], line)
    shown = min(len(stages), MAX_STAGES)
    if len(stages) > shown:
        text = f"… {len(stages) - shown} more stages"
        shapes.append(_label(top + shown * ROW + 15, text, colour=PALE))
        shown += 1
    return top + shown * ROW + 12, shapes


def _fullest(report: Report, stage: int) -> MemoryRow:
    rows = [row for row in report.prediction.memory if row.stage == stage and row.tier == "hbm"]
    return max(rows, key=lambda row: row.reserved_bytes / max(1, row.capacity_bytes))


def _layers(runs: list[_Run], kinds: list[Kind], scale: float, line: float) -> Iterator[Shape]:
    x = LAYERS[0]
    for run in runs:
        width = run.layers * scale
        colour, opacity = _kind_colour(kinds.index(run.kind))
        gap = min(2.0, width / 3)
        yield Box(x=x, y=line, width=width - gap, height=BAR, colour=colour, opacity=opacity)
        text = f"{run.first}-{run.last}" if run.layers > 1 else str(run.first)
        if len(text) * CHARACTER + 6 < width:
            on = INK if colour in LIGHT or opacity < 1 else "#ffffff"
            yield Label(x=x + 5, y=line + 14, text=text, size=11, colour=on)
        x += width


def _kind_colour(number: int) -> tuple[str, float]:
    return COLOURS[number % len(COLOURS)], 1.0 if number < len(COLOURS) else 0.55


def _memory(row: MemoryRow, line: float) -> Iterator[Shape]:
    share = row.reserved_bytes / max(1, row.capacity_bytes)
    colour = OVER if share > 1 else TIGHT if share > 0.9 else GOOD
    left, width = MEMORY
    yield Box(x=left, y=line + 4, width=width, height=12, colour=TRACK, opacity=1.0)
    filled = min(1.0, share) * width
    yield Box(x=left, y=line + 4, width=filled, height=12, colour=colour, opacity=1.0)
    yield _label(line + 15, memory_text(row), x=left + width + 10)


def _kinds(
    report: Report, runs: list[_Run], kinds: list[Kind], y: float
) -> tuple[float, list[Shape]]:
    """What the colors of layers mean."""
    several = f"{len(kinds)} strategies" if len(kinds) > 1 else "One strategy"
    shapes: list[Shape] = [_label(y, f"{several} of layers", size=14)]
    for number, kind in enumerate(kinds[:MAX_KINDS]):
        line = y + 22 + number * 20
        colour, opacity = _kind_colour(number)
        count = sum(run.layers for run in runs if run.kind == kind)
        shapes.append(
            Box(x=MARGIN, y=line - 10, width=11, height=11, colour=colour, opacity=opacity)
        )
        shapes.append(_label(line, f"{_kind_text(kind)}: {_layer_count(count)}", x=MARGIN + 17))
    if len(kinds) > MAX_KINDS:
        line = y + 22 + MAX_KINDS * 20
        shapes.append(_label(line, f"… {len(kinds) - MAX_KINDS} more", colour=PALE))
    return y + 22 + min(len(kinds), MAX_KINDS + 1) * 20, shapes


def _layer_count(count: int) -> str:
    return f"{count} layers" if count > 1 else "1 layer"


def _kind_text(kind: Kind) -> str:
    tp, shard, recompute, techniques = kind
    parts = [f"tp {tp}", shard]
    if recompute not in ("none", "-", ""):
        parts.append(f"recompute {recompute}")
    return ", ".join([*parts, *([techniques] if techniques else [])])
