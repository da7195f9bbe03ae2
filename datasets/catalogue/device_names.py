"""Spellings of devices in makers' and clouds' lists, and the devices that they mean.

Case, ``-``, ``_`` and blanks do not matter. Words of the maker and kinds of memory are left out
(``NVIDIA-H100-80GB-HBM3``), sizes may lack a letter (``A100-80G``, ``A100-80``), and the numbers
of GeForce cards stand alone (``4090``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import Device

FORM_SPELLINGS = {"SXM2": "SXM", "SXM3": "SXM", "SXM4": "SXM", "SXM5": "SXM", "SXM6": "SXM"}
MAKERS = frozenset(("NVIDIA", "AMD", "INSTINCT", "GEFORCE", "TESLA", "GENERATION"))
MEMORIES = frozenset(("HBM2", "HBM2E", "HBM3", "HBM3E", "GDDR6", "GDDR7"))
SIZE = re.compile(r"(\d+)(?:GIB|GB|GI|G)")
GEFORCE = "RTX"


def devices_called(name: str, table: Iterable[Device]) -> list[Device]:
    """The devices of ``table`` that ``name`` may mean; none if it is no such name."""
    known = list(table)
    parts = name_parts(name)
    whole = "".join(parts)
    exact = [d for d in known if whole in map(_joined, (d.name, *d.also_called))]
    return exact or _of_family(parts, known)


def name_parts(name: str) -> list[str]:
    """The telling parts of a name, in one spelling: ``["A100", "SXM", "80GB"]``."""
    words = re.split(r"[-_\s]+", name.upper())
    return [_part(word) for word in words if word not in MAKERS | MEMORIES]


def _part(word: str) -> str:
    sized = SIZE.fullmatch(word)
    return f"{sized[1]}GB" if sized else FORM_SPELLINGS.get(word, word)


def _joined(name: str) -> str:
    return "".join(name_parts(name))


def _of_family(parts: list[str], table: list[Device]) -> list[Device]:
    """Devices of the longest family at the name's start.

    A family may hold hyphens (``RTX-6000-Ada``), optional as typed; the parts that follow choose
    form and memory.
    """
    for length in range(len(parts), 0, -1):
        family, options = "".join(parts[:length]), parts[length:]
        members = [d for d in table if family in _family_names(d)]
        if members:
            sizes = {f"{part}GB" if part.isdigit() else part for part in options}
            matching = [d for d in members if sizes <= {d.form, d.memory_label}]
            return matching if len(options) <= 2 else []
    return []


def _family_names(device: Device) -> tuple[str, ...]:
    """The family's name, and its number alone for a GeForce card."""
    family = _joined(device.family)
    number = family.removeprefix(GEFORCE)
    return (family, number) if number.isdigit() else (family,)
