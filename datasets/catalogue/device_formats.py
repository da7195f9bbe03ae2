"""Which number formats a device computes in."""

from __future__ import annotations

from ...spec.errors import InputError, nearest_name
from .device import Device

FORMAT_RATES = {
    "fp8_tensor": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp8", "nvfp4"),
    "nvfp4": ("nvfp4",),
}
"""The peak rates that a device with a narrow format has."""


def require_dtype(found: Device, dtype: str, where: str) -> None:
    """Refuse a number format that the device does not compute in.

    Args:
        found: the device.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        where: how to name the value in an error.

    Raises:
        InputError: not one of the device's formats.
    """
    if dtype not in found.dtypes:
        allowed = f"what {found.name} computes in: " + ", ".join(found.dtypes)
        raise InputError(where, dtype, allowed, nearest_name(dtype, found.dtypes))


def require_format(found: Device, name: str, where: str) -> None:
    """Refuse a narrow format of matrix products that the device has no units for.

    Blocks scaled in hardware (mxfp8, nvfp4) came with the units that multiply 4-bit numbers.

    Args:
        found: the device.
        name: ``fp8_tensor``, ``fp8_block``, ``mxfp8`` or ``nvfp4``.
        where: how to name the value in an error.

    Raises:
        InputError: the device lacks it; the formats that it has are given.
    """
    rates = set(found.peak_flops_per_s)
    has = [known for known, needed in FORMAT_RATES.items() if rates.issuperset(needed)]
    if name not in has:
        known = [*found.dtypes, *(_shorthand(each) for each in has)]
        near = "fp8" if has else "bf16" if "bf16" in known else known[-1]
        given = _shorthand(name)
        raise InputError(where, given, f"what {found.name} computes in: " + ", ".join(known), near)


def _shorthand(name: str) -> str:
    """A narrow format as ``--dtype`` writes it."""
    return name.removesuffix("_tensor").replace("_", "-")
