"""Number formats that a device computes in."""

from __future__ import annotations

from ...spec.errors import InputError, nearest_name
from .device import Device

FORMAT_RATES = {
    "fp8_tensor": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp8", "nvfp4"),
    "nvfp4": ("nvfp4",),
}
"""Peak rates that a device with a narrow format has."""


def require_dtype(device: Device, dtype: str, where: str) -> None:
    """Refuse a number format that the device does not compute in.

    Raises:
        InputError: not one of the device's formats.
    """
    if dtype not in device.dtypes:
        allowed = f"what {device.name} computes in: " + ", ".join(device.dtypes)
        raise InputError(where, dtype, allowed, nearest_name(dtype, device.dtypes))


def require_format(device: Device, name: str, where: str) -> None:
    """Refuse a narrow product format that the device lacks units for.

    Blocks scaled in hardware (mxfp8, nvfp4) came with the units that multiply 4-bit numbers.

    Raises:
        InputError: the device lacks it; the formats that it has are given.
    """
    rates = set(device.peak_flops_per_s)
    narrow = [key for key, needed in FORMAT_RATES.items() if rates.issuperset(needed)]
    if name not in narrow:
        formats = [*device.dtypes, *(_shorthand(key) for key in narrow)]
        near = "fp8" if narrow else "bf16" if "bf16" in formats else formats[-1]
        allowed = f"what {device.name} computes in: " + ", ".join(formats)
        raise InputError(where, _shorthand(name), allowed, near)


def _shorthand(name: str) -> str:
    return name.removesuffix("_tensor").replace("_", "-")
