"""Residuals refitted to uploaded rows of timed kernels; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....costmodel.calibration.profile_residual import LEAST_ROWS, refitted_residual
from ....costmodel.kernel_latency.refitted import group_of
from ....costmodel.pricing.version import PRICING_VERSION
from ....datasets.catalogue.device import device
from ....datasets.catalogue.stack import stack
from ....spec.cluster.calibration import unfitted
from ....spec.cluster.machine_profile import KernelRow, MachineProfile
from ....spec.codec import from_document, to_document
from ....spec.errors import InputError
from ....spec.report.work_items import ATTENTIONS, FLASH, FUSED, SCANS, Kernel

STACK = "shardwright"
COLUMNS = ("hardware", "op", "shape", "dtype", "flops", "traffic_bytes", "time_s", "spread")
Row = Mapping[str, str | int | float | None]


def fit_uploaded_kernels(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Fit a residual to timed kernels of one device.

    Returns:
        ``calibration``, ``of_memory`` and ``counts``, as :func:`profiling.fit_uploaded_table`.

    Raises:
        InputError: an unusable row, which it names; too few rows, or several devices.
    """
    if len(rows) < LEAST_ROWS:
        raise InputError("rows", f"{len(rows)} kernels", f"at least {LEAST_ROWS}")
    kernels = tuple(_kernel_row(number, row) for number, row in enumerate(rows))
    names = sorted({device(str(row.get("hardware") or "")).name for row in rows})
    if len(names) > 1:
        raise InputError("rows", ", ".join(names), "rows of one device")
    profile = MachineProfile(
        device=names[0], fingerprint="", machine={}, ranks=1, measured_at="",
        duration_s=sum(row.time_s for row in kernels), kernels=kernels,
    )  # fmt: skip
    residual = refitted_residual(profile)
    calibration = unfitted(name=name, device=names[0], stack=stack(STACK).name)
    calibration = replace(calibration, pricing_version=PRICING_VERSION, residual=residual)
    counts = {
        "rows_read": len(rows),
        "rows_usable": len(residual.points),
        "held_out": {"rows": len(rows), "mape": residual.error},
    }
    return {"calibration": to_document(calibration), "of_memory": False, "counts": counts}


def _kernel_row(number: int, row: Row) -> KernelRow:
    unknown = sorted(set(row) - set(COLUMNS))
    if unknown:
        raise InputError(f"rows: {number}.{unknown[0]}", row[unknown[0]], ", ".join(COLUMNS))
    given = {key: value for key, value in row.items() if key != "hardware" and value is not None}
    document: dict[str, Any] = {**given}
    document["shape"] = _shape(number, row.get("shape"))
    try:
        read = from_document(KernelRow, document, "row")
    except InputError as error:
        where = f"rows: {number}.{error.field.partition(': ')[2]}"
        raise InputError(where, error.given, error.allowed, error.nearest) from None
    sides = _sides(Kernel(read.op, read.shape, read.dtype, read.flops, read.traffic_bytes))
    if len(read.shape) != sides:
        raise InputError(f"rows: {number}.shape", row.get("shape"), f"{sides} sizes of {read.op}")
    return read


def _shape(number: int, cell: str | int | float | None) -> list[int]:
    sizes = str(cell).split("x")
    if not all(size.isdecimal() and 0 < int(size) < 2**40 for size in sizes):
        raise InputError(f"rows: {number}.shape", cell, "sizes joined by x", "512x1024x512")
    return [int(size) for size in sizes]


def _sides(kernel: Kernel) -> int:
    """Sizes that a kernel's shape has (:class:`spec.report.work_items.Kernel`)."""
    if kernel.op in ATTENTIONS:
        plain = kernel.op.removesuffix("_backward") == FLASH
        return 5 if plain else 8 if "band" in kernel.op else 7
    if kernel.op in SCANS or kernel.op in FUSED:
        return 7
    if group_of(kernel) == "product":
        return 3 if kernel.op == "matmul" else 4
    return 1
