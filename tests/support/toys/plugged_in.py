"""Toys among the shipped techniques: entries more in each package's tuple."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

TOYS = ("toys.census", "toys.programs.averaging", "toys.programs.signs")
ROLES = {
    "spec": ("value", "TECHNIQUE"),
    "costmodel": ("price", "PRICE"),
    "planner": ("choice", "CHOICE"),
}


def plug_in() -> Any:
    """Add the toys to the tuples; the census's value.

    In a process that has read none of them yet: functions and commands keep what they have read.
    """
    first = None
    for package, (role, name) in ROLES.items():
        added = tuple(getattr(import_module(f"{toy}_{role}"), name) for toy in TOYS)
        techniques = import_module(f"shardwright.{package}.techniques")
        techniques.TECHNIQUES = (*techniques.TECHNIQUES, *added)
        first = first or added[0]
    techniques.SHIPPED = replace(techniques.SHIPPED, choices=techniques.TECHNIQUES)
    return first
