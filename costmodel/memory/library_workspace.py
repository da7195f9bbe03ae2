"""Library workspaces beside live tensors, and a memory calibration's corrections.

PyTorch allocates a cuBLAS workspace per multiplying thread, and Transformer Engine one of its own;
on Hopper and Blackwell they are larger.
"""

from __future__ import annotations

from dataclasses import replace

from ...datasets.catalogue.device import CAPABILITY_9_OR_10, device
from ...spec.cluster.calibration import MEMORY_AS_SHIPPED, MemoryConstants
from ...spec.cluster.measured import Measured, calibration_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.report import MemoryRow

STATES = ("parameters", "gradients", "optimizer")


def workspace_bytes(stack: StackSpec, device_name: str) -> int:
    """Library workspace bytes on a device of the catalogue, at least 0."""
    allocator = stack.allocator
    large = device(device_name).family in CAPABILITY_9_OR_10
    shipped = allocator.large_workspace_bytes if large else allocator.workspace_bytes
    return max(0, shipped + stack.memory.library_bytes)


def min_workspace_bytes(stack: StackSpec) -> int:
    """Lower bound of the workspace bytes on any device."""
    allocator = stack.allocator
    shipped = min(allocator.workspace_bytes, allocator.large_workspace_bytes)
    return max(0, shipped + stack.memory.library_bytes)


def calibrated_stack(stack: StackSpec, measured: Measured | None) -> StackSpec:
    """The stack with the memory constants of its calibration, if any."""
    calibration = calibration_of(measured)
    if calibration is None or calibration.memory is None:
        return stack
    return replace(stack, memory=calibration.memory.constants)


def calibrated_bytes(live: dict[str, int], constants: MemoryConstants) -> dict[str, int]:
    """Bytes of live tensors by term, times a calibration's factors."""
    if constants == MEMORY_AS_SHIPPED:
        return dict(live)
    return {
        term: round(size * (constants.states if term in STATES else constants.activations))
        for term, size in live.items()
    }


def recalibrated_row(
    row: MemoryRow, stack: StackSpec, device_name: str, constants: MemoryConstants
) -> MemoryRow:
    """A row of the shipped stack under other constants; ``by`` stays."""
    states = state_bytes(row)
    others = row.allocated_bytes - states
    live = round(states * constants.states) + round(others * constants.activations)
    fragmentation = int(stack.allocator.fragmentation * live)
    overhead = row.reserved_bytes - row.allocated_bytes - row.by["fragmentation"]
    calibrated = replace(stack, memory=constants)
    overhead += workspace_bytes(calibrated, device_name) - workspace_bytes(stack, device_name)
    reserved = live + fragmentation + overhead
    return replace(row, allocated_bytes=live, reserved_bytes=reserved)


def state_bytes(row: MemoryRow) -> int:
    """Parameters, gradients and optimizer states of a device."""
    return sum(row.by.get(term, 0) for term in STATES)
