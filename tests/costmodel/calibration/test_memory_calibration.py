"""Calibrations of memory: constants that are found again, and what they change of a prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shardwright.costmodel.calibration.memory_fit import OWN_SPREAD, MeasuredPeak, fit_memory
from shardwright.costmodel.memory.feasibility import RELATIVE_DEVIATION, MemoryRule
from shardwright.costmodel.memory.library_workspace import (
    calibrated_bytes,
    calibrated_stack,
    min_workspace_bytes,
    recalibrated_row,
    workspace_bytes,
)
from shardwright.datasets.catalogue.stack import stack, stacks
from shardwright.spec.cluster.calibration import (
    MEMORY_AS_SHIPPED,
    MEMORY_MEANINGS,
    MemoryCalibration,
    MemoryConstants,
    unfitted,
)
from shardwright.spec.report.report import MemoryRow
from shardwright.spec.units import GIB, MIB

KNOWN = MemoryConstants(states=1.05, activations=0.9, library_bytes=200 * MIB)


def predictor(states: float, others: float) -> Callable[[MemoryConstants], float]:
    """GiB of states and of other tensors, 64 MiB of libraries."""

    def predict(constants: MemoryConstants) -> float:
        live = states * constants.states + others * constants.activations
        return live * GIB + 64 * MIB + constants.library_bytes

    return predict


def peaks(outlier: float = 1.0) -> list[MeasuredPeak]:
    """Ten peaks that the known constants explain; the first times ``outlier``."""
    sizes = [(1 + n % 4, 0.5 + n % 5) for n in range(10)]
    found = []
    for number, size in enumerate(sizes):
        predict = predictor(*size)
        times = 1.0 if number else outlier
        found.append(MeasuredPeak(f"row-{number}", predict(KNOWN) * times, predict))
    return found


def test_every_constant_has_a_meaning() -> None:
    assert set(MEMORY_MEANINGS) == set(MemoryConstants.__dataclass_fields__)
    assert len(MEMORY_MEANINGS) <= 6


def test_known_constants_are_found_from_ten_peaks() -> None:
    found = fit_memory(peaks())
    assert found.constants.states == pytest.approx(KNOWN.states, abs=0.03)
    assert found.constants.activations == pytest.approx(KNOWN.activations, abs=0.03)
    assert found.fitted_error < 0.01 < found.shipped_error
    assert found.deviation == OWN_SPREAD
    assert found == fit_memory(peaks())


def test_a_row_that_is_two_and_a_half_times_too_large_does_not_decide() -> None:
    found = fit_memory(peaks(2.5))
    assert found.fitted_error < 0.02 < found.shipped_error


def test_rows_that_are_predicted_well_change_nothing() -> None:
    rows = [row._replace(peak_bytes=row.predict(MEMORY_AS_SHIPPED)) for row in peaks()]
    assert fit_memory(rows).constants == MEMORY_AS_SHIPPED


def test_no_bound_is_narrower_than_as_shipped_and_no_rows_are_refused() -> None:
    assert fit_memory(peaks()[:1]).deviation >= OWN_SPREAD >= RELATIVE_DEVIATION
    for rows in ([], [*peaks(), *peaks()]):
        with pytest.raises(ValueError, match="rows"):
            fit_memory(rows)


def row() -> MemoryRow:
    """A device of the stack megatron as shipped on H100: 10 GiB of states, 5 of others."""
    megatron = stack("megatron")
    live = {"parameters": 10 * GIB, "activations": 5 * GIB}
    by = {
        **live,
        "workspace": workspace_bytes(megatron, "H100-SXM-80GB"),
        "fragmentation": int(megatron.allocator.fragmentation * 15 * GIB),
        "context": megatron.allocator.context_bytes,
    }
    return MemoryRow(
        program="train",
        stage=0,
        device_group="gpu",
        allocated_bytes=15 * GIB,
        reserved_bytes=sum(by.values()),
        capacity_bytes=80 * GIB,
        by=by,
    )


def test_factors_multiply_their_own_tensors_and_fragmentation_follows() -> None:
    megatron = stack("megatron")
    assert recalibrated_row(row(), megatron, "H100-SXM-80GB", MEMORY_AS_SHIPPED) == row()
    # The states grow by 3 GiB and the activations by half a one: neither hides the other.
    uneven = replace(KNOWN, states=1.3, activations=1.1)
    found = recalibrated_row(row(), megatron, "H100-SXM-80GB", uneven)
    assert found.allocated_bytes == pytest.approx(18.5 * GIB, abs=2)
    fragments = 1 + megatron.allocator.fragmentation
    assert fragments > 1.01
    grown = 3.5 * GIB * fragments + uneven.library_bytes
    assert found.reserved_bytes - row().reserved_bytes == pytest.approx(grown, abs=4)
    assert calibrated_bytes({"parameters": 100, "workspace": 100}, KNOWN) == {
        "parameters": 105,
        "workspace": 90,
    }


def test_a_calibration_acts_through_the_stack_and_its_deviation_through_the_rule() -> None:
    megatron = stack("megatron")
    assert calibrated_stack(megatron, None) is megatron
    assert calibrated_stack(megatron, unfitted()) is megatron
    memory = MemoryCalibration(
        constants=KNOWN,
        fitted_on=("a",),
        deviation=0.1,
        shipped_error=0.2,
        fitted_error=0.1,
        left_out_error=0.1,
    )
    measured = replace(unfitted(), memory=memory)
    assert calibrated_stack(megatron, measured).memory == KNOWN
    rule = MemoryRule().measured_by(measured)
    assert rule.deviation == 0.1
    assert rule.excess_bytes(row()) > MemoryRule().excess_bytes(row())
    assert MemoryRule().measured_by(None) == MemoryRule()


@pytest.mark.parametrize("constants", [KNOWN, MemoryConstants(states=0.8, activations=1.3)])
def test_the_budget_of_live_bytes_cuts_no_plan_that_fits(constants: MemoryConstants) -> None:
    calibrated = replace(stack("megatron"), memory=constants)
    rule, capacity = MemoryRule(), 80 * GIB
    budget = rule.live_budget_bytes(capacity, calibrated, 0)
    live = {"parameters": 0, "activations": 0}
    for term in live:
        held = calibrated_bytes({**live, term: int(budget) + 64}, constants)
        least = min_workspace_bytes(calibrated) + calibrated.allocator.context_bytes
        reserved = sum(held.values()) * (1 + calibrated.allocator.fragmentation) + least
        factor = constants.states if term == "parameters" else constants.activations
        if factor == min(constants.states, constants.activations):
            assert reserved * rule.margin == pytest.approx(capacity, rel=1e-6)
        assert reserved * rule.margin > capacity * (1 - 1e-6)


def test_workspaces_are_larger_on_hopper_and_blackwell_and_never_negative() -> None:
    for known in stacks().values():
        small, large = (workspace_bytes(known, name) for name in ("A100-SXM-80GB", "B200"))
        assert 0 < small < large
        assert min_workspace_bytes(known) == small
    less = replace(stack("megatron"), memory=MemoryConstants(library_bytes=-GIB))
    assert workspace_bytes(less, "A100-SXM-80GB") == 0
