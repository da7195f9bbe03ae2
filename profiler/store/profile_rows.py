"""Merge measured rows into a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...datasets.catalogue.device import CPU
from ...spec.cluster.machine_profile import (
    CollectiveRow,
    CopyRow,
    KernelRow,
    MachineProfile,
    Skipped,
)
from ...spec.codec import to_document
from ...spec.report.work_items import Kernel

Document = dict[str, Any]
Row = TypeVar("Row", KernelRow, CollectiveRow, CopyRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Results of a stage: documents of rows, launch seconds, overlap slowdown."""

    kernels: Sequence[Document] = ()
    collectives: Sequence[Document] = ()
    copies: Sequence[Document] = ()
    skipped: Sequence[Document] = ()
    launch_s: float | None = None
    overlap_slowdown: float | None = None


def case_key(case: Kernel | KernelRow) -> tuple[str, tuple[int, ...], str, int]:
    """Identity of the case of a kernel or its row."""
    return case.op, case.shape, case.dtype, case.traffic_bytes


def with_measurements(profile: MachineProfile, measurements: Measurements) -> MachineProfile:
    """The profile with a stage's results.

    Of repeated rows the least time counts on cores, where noise only adds; elsewhere the last.
    """
    keep_least = profile.device == CPU
    kernels = [KernelRow(**_shaped(row)) for row in measurements.kernels]
    skipped = [Skipped(**_shaped(row)) for row in measurements.skipped]
    host_s = {} if measurements.launch_s is None else {"launch": measurements.launch_s}
    factor = measurements.overlap_slowdown
    return replace(
        profile,
        kernels=_merged(profile.kernels, kernels, keep_least),
        collectives=_merged(
            profile.collectives,
            [CollectiveRow(**row) for row in measurements.collectives],
            keep_least,
        ),
        copies=_merged(profile.copies, [CopyRow(**row) for row in measurements.copies], keep_least),
        skipped=tuple(dict.fromkeys((*profile.skipped, *skipped))),
        host_s={**profile.host_s, **host_s},
        overlap_slowdown=profile.overlap_slowdown if factor is None else factor,
    )


def _shaped(row: Document) -> Document:
    return {**row, "shape": tuple(row.get("shape", ()))}


def _merged(earlier: tuple[Row, ...], rows: list[Row], keep_least: bool) -> tuple[Row, ...]:
    by_key = {_key(row): row for row in earlier}
    for row in rows:
        previous = by_key.get(_key(row))
        if previous is None or not keep_least or row.time_s < previous.time_s:
            by_key[_key(row)] = row
    return tuple(by_key.values())


def _key(row: KernelRow | CollectiveRow | CopyRow) -> tuple[Any, ...]:
    document = to_document(row)
    return tuple((k, str(v)) for k, v in sorted(document.items()) if k not in ("time_s", "spread"))
