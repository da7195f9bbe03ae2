"""Stage 1: measured peak rates of the device, from which floors follow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import torch
from gpu.stage import Measurement, Setting, Stage, Values
from harness.shapes import Table

from shardwright.profiler.timing.device_timing import time_on

COPY_BYTES = {False: 2**30, True: 2**22}
SIDE = {False: 8192, True: 256}
BUDGET_S = 1.0
SUSTAINED_S = {False: 2.0, True: 0.05}


def rows(setting: Setting) -> list[Measurement]:
    """Copy, product in a burst and on and on, launch."""
    return [
        Measurement("copy", partial(_copy, setting)),
        Measurement("matmul", partial(_matmul, setting)),
        Measurement("matmul, sustained", partial(_sustained, setting)),
        Measurement("launch", partial(_launch, setting)),
    ]


def _copy(setting: Setting) -> Values:
    """Bytes read and written a second by a copy in device memory."""
    size = COPY_BYTES[setting.reduced]
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=setting.device)
    timing = time_on(setting.device, [source.clone], BUDGET_S)
    rate = 2 * size / timing.median_s
    return {"bytes": size, "bytes_per_s": rate, **_timed(timing.median_s, timing.spread)}


def _matmul(setting: Setting) -> Values:
    """FLOPs a second of a bf16 product of random matrices."""
    side = SIDE[setting.reduced]
    left, right = (
        torch.randn(side, side, dtype=torch.bfloat16, device=setting.device) for _ in range(2)
    )
    timing = time_on(setting.device, [partial(torch.mm, left, right)], BUDGET_S)
    rate = 2 * side**3 / timing.median_s
    return {"side": side, "flops_per_s": rate, **_timed(timing.median_s, timing.spread)}


def _sustained(setting: Setting) -> Values:
    """The product repeated for seconds: power and heat lower the clock."""
    side, device = SIDE[setting.reduced], setting.device
    left, right = (torch.randn(side, side, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = left @ right
    wanted_s, at_once = SUSTAINED_S[setting.reduced], 16
    _wait(device)
    start_s, runs = time.perf_counter(), 0
    # The host waits between batches, each while the next one is queued, to see how long it took.
    marks: list[torch.cuda.Event] = []
    while time.perf_counter() - start_s < wanted_s:
        for _ in range(at_once):
            torch.mm(left, right, out=out)
        runs += at_once
        if device.type == "cuda":
            marks.append(torch.cuda.Event())
            marks[-1].record()
            if len(marks) > 2:
                marks.pop(0).synchronize()
    _wait(device)
    spent_s = time.perf_counter() - start_s
    return {"side": side, "flops_per_s": 2 * side**3 * runs / spent_s, "spent_s": spent_s}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _launch(setting: Setting) -> Values:
    """Seconds of the device for work of no size, behind a queue."""
    tiny = torch.zeros(1, device=setting.device)
    timing = time_on(setting.device, [partial(tiny.add_, 1)])
    return _timed(timing.median_s, timing.spread)


def _timed(time_s: float, spread: float) -> Values:
    return {"time_s": time_s, "spread": spread}


def tables(rates: Mapping[str, Values]) -> list[Table]:
    """The rates; floors use those of short bursts, as kernels are timed."""
    lines = []
    if "copy" in rates:
        row = rates["copy"]
        what = f"copy of {row['bytes'] / 2**20:.0f} MiB, read and written"
        lines.append((what, f"{row['bytes_per_s'] / 1e12:.3f} TB/s", f"{row['spread']:.1%}"))
    if "matmul" in rates:
        row = rates["matmul"]
        what = f"product of bf16 matrices, {row['side']} x {row['side']}, random"
        lines.append((what, f"{row['flops_per_s'] / 1e12:.1f} TFLOP/s", f"{row['spread']:.1%}"))
    if "matmul, sustained" in rates:
        row = rates["matmul, sustained"]
        what = f"the same product for {row['spent_s']:.1f} s on end"
        lines.append((what, f"{row['flops_per_s'] / 1e12:.1f} TFLOP/s", ""))
    if "launch" in rates:
        row = rates["launch"]
        lines.append(("one addition", f"{row['time_s'] * 1e6:.2f} µs", f"{row['spread']:.1%}"))
    columns = ("what", "median", "quartiles apart")
    return [Table(title="Measured ceilings", columns=columns, rows=lines)]


STAGE = Stage(
    name="ceilings",
    order=1,
    budget_s=40,
    reduced_s=60,
    shows="Rates of a copy and of a matrix product, which floors are made from.",
    rows=rows,
    tables=tables,
)
