"""The census among the shipped techniques: one entry more in each package's tuple."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

ROLES = {
    "spec": ("toys.census_value", "TECHNIQUE"),
    "costmodel": ("toys.census_price", "PRICE"),
    "planner": ("toys.census_choice", "CHOICE"),
}


def plug_in() -> Any:
    """Add the census to the tuples; its value.

    In a process that has read none of them yet: functions and commands keep what they have read.
    """
    added = {}
    for package, (toy, name) in ROLES.items():
        added[package] = getattr(import_module(toy), name)
        techniques = import_module(f"shardwright.{package}.techniques")
        techniques.TECHNIQUES = (*techniques.TECHNIQUES, added[package])
    techniques.SHIPPED = replace(techniques.SHIPPED, choices=techniques.TECHNIQUES)
    return added["spec"]
