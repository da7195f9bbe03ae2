"""What was measured of a machine, in place of shipped prices or to correct them."""

from __future__ import annotations

from .calibration import Calibration
from .profile import MachineProfile

Measured = MachineProfile | Calibration
"""A profile has kernels and links of a machine's own; a calibration has factors."""
