"""Devices, formats and policies read from names missing in ``names.toml``.

Sources write one device in many ways (``NVIDIA A100-SXM4-80GB``, ``8x H100 SXM5``), and one number
format too (``float8 tensorwise``, ``bfloat16``). A name is read if its parts have one meaning; each
reading is a listed assumption.
"""

from __future__ import annotations

import re

from ..catalogue.device import CPU, Device, devices

FORMATS = (
    ("(?<!mx)fp4", "nvfp4"),
    ("mxfp8", "mxfp8"),
    ("fp8.*mx", "mxfp8"),
    ("(fp8|float8).*(block|subchannel)", "fp8-block"),
    ("(fp8|float8).*delayed", "fp8-delayed"),
    ("fp8|float8", "fp8"),
    ("bf16|bfloat16", "bf16"),
    ("fp16|float16|half", "fp16"),
    ("fp32|float32|tf32", "fp32"),
)
"""Patterns in a number format's name, the narrowest first, and its ``--dtype``."""


def read_device(text: str) -> str | None:
    """The catalogue's device for a printed name; None if ambiguous or unknown.

    The family has to be a word of the name; memory and form choose among its sizes, by default the
    usual ones.
    """
    name = text.upper()
    families: dict[str, list[Device]] = {}
    for device in devices().values():
        if device.name != CPU:
            families.setdefault(_family(device), []).append(device)
    matches = [family for family in families if _is_word(family, name)]
    if len(matches) != 1:
        return None
    return min(families[matches[0]], key=lambda device: _distance(device, name)).name


def read_dtype(text: str) -> str | None:
    """The ``--dtype`` for a printed number format."""
    name = text.casefold()
    return next((dtype for pattern, dtype in FORMATS if re.search(pattern, name)), None)


def read_recompute(text: str) -> str | None:
    """``--recompute`` for a printed policy; None if it names modules that run again."""
    name = text.casefold().strip()
    if name.startswith("full"):
        return "full"
    if re.fullmatch(r"selective[\s(:]*(per[\s-]*)?op(eration)?s?\)?", name):
        return "selective-ops"
    operations = re.findall(r"[a-z_]+", name.removeprefix("selective"))
    if name.startswith("selective") and set(operations) <= {"core_attn", "core_attention"}:
        return "selective"
    return "none" if name in ("none", "no", "off", "false") else None


def _family(device: Device) -> str:
    """The name without form and memory: ``A100``, ``RTX-6000-Ada``."""
    return re.sub(r"(-SXM|-PCIE)?-\d+GB$", "", device.name).upper()


def _is_word(family: str, name: str) -> bool:
    spaced = r"[\s-]*".join(map(re.escape, family.split("-")))
    return re.search(rf"(?<![A-Z0-9]){spaced}(?![A-Z0-9])", name) is not None


def _distance(device: Device, name: str) -> tuple[bool, int, bool]:
    wants_bus = "PCI" in name
    is_bus = device.form == "PCIE"
    sizes = [int(number) for number in re.findall(r"(?<![A-Z0-9])(\d+)\s*G(?:I?B)?(?![A-Z])", name)]
    memory_gb = int(re.findall(r"-(\d+)GB$", device.name)[0])
    return (
        wants_bus != is_bus,
        min((abs(memory_gb - size) for size in sizes), default=0),
        not device.usual,
    )
