"""Stage 2: every kernel family against torch eager, torch.compile and the measured floor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gpu.entry import FULL, TINY, collected
from gpu.kernel_table import measure
from gpu.stage import Claim, Measurement, Setting, Stage, Values, Verdict
from harness.shapes import Table

LEAST_OF_COPY = 0.85
NOISE = 1.02
"""Two timings of the same kernel differ by as much: what eager may be faster by."""
LOSS = "linear_cross_entropy"
MOST_OF_FLOOR, MOST_OF_PEAK = 1.15, 0.25
LEAST_S = 8.0


def rows(setting: Setting) -> list[Measurement]:
    """A row an entry."""
    sizes = TINY if setting.reduced else FULL
    least_s = 0.0 if setting.reduced else LEAST_S
    return [
        Measurement(entry.key, partial(measure, entry, sizes, setting), least_s)
        for entry in collected(sizes)
    ]


def tables(found: Mapping[str, Values]) -> list[Table]:
    """Times, ratios and what was picked; peaks of memory where they were compared."""
    columns = ("kernel", "picked", "ours", "of floor", "of eager", "of compiled", "error")
    lines = [_line(key, row) for key, row in found.items()]
    made = [Table(title="Kernels: time, and time over that of others", columns=columns, rows=lines)]
    peaks = [_peaks(key, row) for key, row in found.items() if row["ours"].get("peak_bytes")]
    if peaks:
        columns = ("kernel", "ours", "eager", "ours over eager")
        title = "Peak memory beyond the operands"
        made.append(Table(title=title, columns=columns, rows=peaks))
    reasons = sorted({line for row in found.values() for line in row["why"] if "(" in line})
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


def _memory_bound(found: Mapping[str, Values]) -> dict[str, Values]:
    return {k: r for k, r in found.items() if r["bound"] == "memory" and r["judged"]}


def _judge_copy(found: Mapping[str, Values]) -> Verdict | str:
    rows = {k: r for k, r in _memory_bound(found).items() if r["floor_s"] is not None}
    if not rows:
        return "no copy rate to hold them against: run the stage ceilings first"
    shares = {key: row["floor_s"] / row["ours"]["time_s"] for key, row in rows.items()}
    return _worst(shares, lambda share: share >= LEAST_OF_COPY, min, "{:.1%} of the copy rate")


def _judge_eager(found: Mapping[str, Values]) -> Verdict | str:
    rows = {key: row for key, row in found.items() if row["judged"]}
    ratios = {k: r["ours"]["time_s"] / r["eager"]["time_s"] for k, r in rows.items()}
    return _worst(ratios, lambda ratio: ratio <= NOISE, max, "{:.2f} of eager's time")


def _worst(figures: dict[str, float], met: Any, worst: Any, words: str) -> Verdict:
    """All of them in one verdict: how many meet it, and the one that is furthest."""
    meeting = [key for key, figure in figures.items() if met(figure)]
    key = worst(figures, key=lambda name: figures[name])
    figure = f"{len(meeting)} of {len(figures)}; the worst {words.format(figures[key])}: {key}"
    return Verdict(figure, len(meeting) == len(figures), {"by_kernel": figures})


def _loss_row(found: Mapping[str, Values]) -> Values | str:
    rows = [row for row in found.values() if row["family"] == LOSS and row["mode"] == "both"]
    return rows[0] if rows else f"no row of {LOSS}"


def _judge_loss_time(found: Mapping[str, Values]) -> Verdict | str:
    row = _loss_row(found)
    if isinstance(row, str):
        return row
    if row["floor_s"] is None:
        return "no product's rate to hold it against: run the stage ceilings first"
    ratio = row["ours"]["time_s"] / row["floor_s"]
    return Verdict(f"{ratio:.3f} x the floor", ratio <= MOST_OF_FLOOR, {"ratio": ratio})


def _judge_loss_peak(found: Mapping[str, Values]) -> Verdict | str:
    row = _loss_row(found)
    if isinstance(row, str):
        return row
    share = row["ours"]["peak_bytes"] / row["eager"]["peak_bytes"]
    return Verdict(f"{share:.1%} of the unfused peak", share <= MOST_OF_PEAK, {"share": share})


STAGE = Stage(
    name="kernels",
    order=2,
    budget_s=420,
    reduced_s=240,
    shows="Every kernel family against eager, compiled eager and the floor, in bf16.",
    rows=rows,
    tables=tables,
    claims=(
        Claim(
            name="memory-bound kernels against a copy",
            target=f"each at least {LEAST_OF_COPY:.0%} of the measured copy rate, at 64 MiB bf16",
            judge=_judge_copy,
        ),
        Claim(
            name="kernels against eager",
            target=f"none slower than torch eager (beyond {NOISE - 1:.0%} of noise)",
            judge=_judge_eager,
        ),
        Claim(
            name="fused linear cross-entropy, time",
            target=f"at most {MOST_OF_FLOOR} x its floor of three products",
            judge=_judge_loss_time,
        ),
        Claim(
            name="fused linear cross-entropy, memory",
            target=f"at most {MOST_OF_PEAK:.0%} of the unfused peak",
            judge=_judge_loss_peak,
        ),
    ),
)
