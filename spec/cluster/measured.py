"""Measurements of a machine that replace shipped prices or correct them."""

from __future__ import annotations

from dataclasses import dataclass

from .calibration import Calibration
from .machine_profile import MachineProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedProfile:
    """A machine's profile, and factors on it fitted to whole steps."""

    profile: MachineProfile
    calibration: Calibration


Measured = MachineProfile | Calibration | CorrectedProfile
"""A profile has a machine's own kernels and links; a calibration has factors."""


def profile_of(measured: Measured | None) -> MachineProfile | None:
    """The profile in it, if there is one."""
    if isinstance(measured, CorrectedProfile):
        return measured.profile
    return measured if isinstance(measured, MachineProfile) else None


def calibration_of(measured: Measured | None) -> Calibration | None:
    """The calibration in it, if there is one."""
    if isinstance(measured, CorrectedProfile):
        return measured.calibration
    return measured if isinstance(measured, Calibration) else None
