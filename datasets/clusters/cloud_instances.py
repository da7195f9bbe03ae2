"""Instances of clouds in a cluster's text: ``p4de.24xlarge``, ``4xa3-highgpu-8g``."""

from __future__ import annotations

import re

from ...spec.errors import InputError, nearest_name
from ...spec.report.report import Assumption
from ..catalogue.instance import Instance, instance, instances

COUNTED_NAME = re.compile(r"(?:([0-9]+)x)?([a-z][\w.-]*)", re.ASCII | re.IGNORECASE)
INSTANCE_LIKE = re.compile(r"[._]|gpu", re.IGNORECASE)
"""What names of instances have, and those of devices lack."""


def counted_instance(head: str) -> tuple[str, Instance] | None:
    """The digits of the count and the instance of ``NxINSTANCE``; None if it is none."""
    match = COUNTED_NAME.fullmatch(head)
    found = None if match is None else instance(match[2])
    return None if match is None or found is None else (match[1] or "1", found)


def nearest_instances(name: str) -> str:
    """Instances nearest to ``name`` if it looks like one, else ''."""
    return nearest_name(name, instances()) if INSTANCE_LIKE.search(name) else ""


def unknown_device(error: InputError, nodes: int | None, name: str, text: str) -> InputError:
    """The error for a text whose devices are none: perhaps an instance's name was meant."""
    found = instance(name)
    if found is not None:
        allowed = f"NxINSTANCE, for {found.name} has {found.devices} x {found.device}"
        return InputError(error.field, text, allowed, f"{nodes or 1}x{found.name}")
    near = nearest_instances(name)
    if not near:
        return error
    allowed = "a device or a cloud's instance (plan clusters lists both)"
    return InputError(error.field, name, allowed, near)


def instance_note(item: Instance, expansion: str) -> Assumption:
    """What an instance's name stands for, and where that is printed."""
    network = item.network or "no network printed"
    why = f"{item.name} of {item.cloud}: {item.devices} devices, {network} ({item.source})"
    return Assumption(path="cluster", value=expansion, why=why)
