"""What each technique lets a plan decide."""

from __future__ import annotations

from types import ModuleType

TECHNIQUES: tuple[ModuleType, ...] = ()
"""The modules of this package, one a technique: its name is the module's; none yet.

The packages ``costmodel``, ``planner`` and ``executor`` list theirs by the same names and order.
"""
