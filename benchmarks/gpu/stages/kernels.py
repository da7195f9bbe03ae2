"""Stage 2: kernel families against eager, torch.compile and the measured floor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gpu.entry import FULL, TINY, collected
from gpu.kernel_claims import CLAIMS
from gpu.kernel_table import measure
from gpu.stage import Measurement, Setting, Stage, Values
from harness.shapes import Table

LEAST_S = 8.0


def rows(setting: Setting) -> list[Measurement]:
    """A row an entry, judged ones first, grouped by family for compilers."""
    sizes = TINY if setting.reduced else FULL
    least_s = 0.0 if setting.reduced else LEAST_S
    entries = sorted(collected(sizes), key=lambda entry: not entry.judged)  # stable
    first = {entry.family: entry.case for entry in reversed(entries)}
    return [
        Measurement(
            entry.key,
            partial(measure, entry, sizes, setting, compiles=entry.case == first[entry.family]),
            least_s,
        )
        for entry in entries
    ]


def tables(values: Mapping[str, Values]) -> list[Table]:
    """Times, ratios and picks; peak memory where it was compared."""
    columns = ("kernel", "picked", "ours", "of floor", "of eager", "of compiled", "error")
    lines = [_line(key, row) for key, row in values.items()]
    made = [Table(title="Kernels: time, and time over that of others", columns=columns, rows=lines)]
    peaks = [_peaks(key, row) for key, row in values.items() if row["ours"].get("peak_bytes")]
    if peaks:
        columns = ("kernel", "ours", "eager", "ours over eager")
        title = "Peak memory beyond the operands"
        made.append(Table(title=title, columns=columns, rows=peaks))
    reasons = sorted({line for row in values.values() for line in row["why"] if "(" in line})
    if reasons:
        rows = [(line,) for line in reasons]
        made.append(Table(title="Why not a better kernel", columns=("choice",), rows=rows))
    return made


def _line(key: str, row: Values) -> tuple[str, ...]:
    ours_s = row["ours"]["time_s"]
    compiled = row["compiled"]
    return (
        key,
        ", ".join(row["picked"]) or "library",
        f"{ours_s * 1e6:.1f} µs",
        "" if row["floor_s"] is None else f"{ours_s / row['floor_s']:.2f}",
        f"{ours_s / row['eager']['time_s']:.2f}",
        f"{ours_s / compiled['time_s']:.2f}" if "time_s" in compiled else compiled["why"],
        "" if row["error"] is None else f"{row['error']:.1e}",
    )


def _peaks(key: str, row: Values) -> tuple[str, ...]:
    ours, eager = row["ours"]["peak_bytes"], row["eager"]["peak_bytes"]
    return key, f"{ours / 2**20:.0f} MiB", f"{eager / 2**20:.0f} MiB", f"{ours / eager:.2f}"


STAGE = Stage(
    name="kernels",
    order=2,
    budget_s=400,
    reduced_s=240,
    shows="Every kernel family against eager, compiled eager and the floor, in bf16.",
    rows=rows,
    tables=tables,
    claims=CLAIMS,
)
