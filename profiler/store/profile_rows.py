"""Rows that a stage found, joined to those of a profile."""

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
    """What a stage found: documents of rows, host seconds of a launch, factor of sharing."""

    kernels: Sequence[Document] = ()
    collectives: Sequence[Document] = ()
    copies: Sequence[Document] = ()
    skipped: Sequence[Document] = ()
    launch_s: float | None = None
    overlap_slowdown: float | None = None


def case_key(case: Kernel | KernelRow) -> tuple[str, tuple[int, ...], str, int]:
    """What says which case a kernel or its row is of."""
    return case.op, case.shape, case.dtype, case.traffic_bytes


def with_measurements(profile: MachineProfile, found: Measurements) -> MachineProfile:
    """The profile with what a stage found.

    Of what was timed before the least stands on cores, where others only add; elsewhere the last.
    """
    least = profile.device == CPU
    kernels = [KernelRow(**_shaped(row)) for row in found.kernels]
    skipped = [Skipped(**_shaped(row)) for row in found.skipped]
    host_s = {} if found.launch_s is None else {"launch": found.launch_s}
    factor = found.overlap_slowdown
    return replace(
        profile,
        kernels=_joined(profile.kernels, kernels, least),
        collectives=_joined(
            profile.collectives, [CollectiveRow(**row) for row in found.collectives], least
        ),
        copies=_joined(profile.copies, [CopyRow(**row) for row in found.copies], least),
        skipped=tuple(dict.fromkeys((*profile.skipped, *skipped))),
        host_s={**profile.host_s, **host_s},
        overlap_slowdown=profile.overlap_slowdown if factor is None else factor,
    )


def _shaped(row: Document) -> Document:
    return {**row, "shape": tuple(row.get("shape", ()))}


def _joined(known: tuple[Row, ...], rows: list[Row], least: bool) -> tuple[Row, ...]:
    every = {_key(row): row for row in known}
    for row in rows:
        before = every.get(_key(row))
        if before is None or not least or row.time_s < before.time_s:
            every[_key(row)] = row
    return tuple(every.values())


def _key(row: KernelRow | CollectiveRow | CopyRow) -> tuple[Any, ...]:
    """All that says what was timed: everything but its result."""
    document = to_document(row)
    return tuple((k, str(v)) for k, v in sorted(document.items()) if k not in ("time_s", "spread"))
