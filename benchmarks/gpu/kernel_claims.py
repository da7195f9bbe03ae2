"""Claims about the kernel table; met only once every row is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu.entry import FULL, Entry, collected
from gpu.stage import Claim, Values, Verdict
from gpu.verdicts import verdict_of_all

LEAST_OF_COPY = 0.85
NOISE = 0.02
"""Two timings of the same kernel differ by as much: what eager may be faster by."""
LOSS = "linear_cross_entropy"
MOST_OF_FLOOR, MOST_OF_PEAK = 1.15, 0.25
Rows = Mapping[str, Values]


def asked(of: Callable[[Entry], bool]) -> list[str]:
    """Rows of the full form with a property, measured or not."""
    return [entry.key for entry in collected(FULL) if of(entry)]


def _judge_copy(table: Rows) -> Verdict | str:
    planned = asked(lambda entry: entry.bound == "memory" and entry.judged)
    with_floor = {k: r for k, r in table.items() if r["floor_s"] is not None}
    if table and not with_floor:
        return "no copy rate to hold them against: run the stage ceilings first"
    shares = {key: row["floor_s"] / row["ours"]["time_s"] for key, row in with_floor.items()}
    limits = dict.fromkeys(shares, LEAST_OF_COPY)
    return verdict_of_all(shares, limits, planned, "{:.1%} of the copy rate", at_least=True)


def _judge_eager(table: Rows) -> Verdict | str:
    planned = asked(lambda entry: entry.judged)
    ratios = {k: r["ours"]["time_s"] / r["eager"]["time_s"] for k, r in table.items()}
    limits = {key: 1 + noise_of(row) for key, row in table.items()}
    return verdict_of_all(ratios, limits, planned, "{:.2f} of eager's time")


def noise_of(row: Values) -> float:
    """By how much two timings may differ.

    Where nothing was picked the library's kernel runs on both sides, and nothing but the noise
    of both timings lies between them.
    """
    if row["picked"]:
        return NOISE
    return max(NOISE, row["ours"]["spread"], row["eager"]["spread"])


def _planned_losses() -> list[str]:
    return asked(lambda entry: entry.family == LOSS and entry.mode == "both")


def _judge_loss_time(table: Rows) -> Verdict | str:
    rows = {key: row for key, row in table.items() if row["floor_s"] is not None}
    if table and not rows:
        return "no product's rate to hold it against: run the stage ceilings first"
    ratios = {key: row["ours"]["time_s"] / row["floor_s"] for key, row in rows.items()}
    limits = dict.fromkeys(ratios, MOST_OF_FLOOR)
    return verdict_of_all(ratios, limits, _planned_losses(), "{:.3f} x the floor")


def _judge_loss_peak(table: Rows) -> Verdict | str:
    planned = _planned_losses()
    both = {key: (table[key]["ours"], table[key]["eager"]) for key in planned if key in table}
    shares = {key: ours["peak_bytes"] / eager["peak_bytes"] for key, (ours, eager) in both.items()}
    limits = dict.fromkeys(shares, MOST_OF_PEAK)
    return verdict_of_all(shares, limits, planned, "{:.1%} of the unfused peak")


CLAIMS = (
    Claim(
        name="memory-bound kernels against a copy",
        target=f"each at least {LEAST_OF_COPY:.0%} of the measured copy rate, at 64 MiB bf16",
        judge=_judge_copy,
    ),
    Claim(
        name="kernels against eager",
        target=f"none slower than torch eager (beyond {NOISE:.0%} of noise, or the spread of the "
        "timings where both sides run the library's kernel)",
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
)
