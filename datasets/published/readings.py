"""Names of published runs that ``names.toml`` does not list, read by what stands in them.

Sources write one device in many ways (``NVIDIA A100-SXM4-80GB``, ``8x H100 SXM5``), and one number
format too (``float8 tensorwise``, ``bfloat16``). A name is read where its parts leave one meaning;
everything that was read so is a listed assumption.
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
"""What a number format's name holds, the narrowest first, and its ``--dtype``."""


def read_device(text: str) -> str | None:
    """The device of the catalogue that a printed name means; None if none or several fit.

    The family has to stand in the name as a word; memory and form choose among its sizes, and
    where they are not printed the usual ones do.
    """
    name = text.upper()
    families: dict[str, list[Device]] = {}
    for found in devices().values():
        if found.name != CPU:
            families.setdefault(_family(found), []).append(found)
    named = [family for family in families if _is_word(family, name)]
    if len(named) != 1:
        return None
    return min(families[named[0]], key=lambda found: _distance(found, name)).name


def read_dtype(text: str) -> str | None:
    """The ``--dtype`` that a printed number format means."""
    name = text.casefold()
    return next((dtype for pattern, dtype in FORMATS if re.search(pattern, name)), None)


def read_recompute(text: str) -> str | None:
    """``--recompute`` of a printed policy; None where it names single operations."""
    name = text.casefold().strip()
    if name.startswith("full"):
        return "full"
    operations = re.findall(r"[a-z_]+", name.removeprefix("selective"))
    if name.startswith("selective") and set(operations) <= {"core_attn", "core_attention"}:
        return "selective"
    return "none" if name in ("none", "no", "off", "false") else None


def _family(found: Device) -> str:
    """The name without form and memory: ``A100``, ``RTX-6000-Ada``."""
    return re.sub(r"(-SXM|-PCIE)?-\d+GB$", "", found.name).upper()


def _is_word(family: str, name: str) -> bool:
    spaced = r"[\s-]*".join(map(re.escape, family.split("-")))
    return re.search(rf"(?<![A-Z0-9]){spaced}(?![A-Z0-9])", name) is not None


def _distance(found: Device, name: str) -> tuple[bool, int, bool]:
    """How far a device is from what its printed name says: form, GB, whether it is usual."""
    wants_bus = "PCI" in name
    is_bus = found.form == "PCIE"
    sizes = [int(number) for number in re.findall(r"(?<![A-Z0-9])(\d+)\s*G(?:I?B)?(?![A-Z])", name)]
    own = int(re.findall(r"-(\d+)GB$", found.name)[0])
    return wants_bus != is_bus, min((abs(own - size) for size in sizes), default=0), not found.usual
