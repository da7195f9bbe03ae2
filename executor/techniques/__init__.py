"""How each technique runs on real ranks."""

from __future__ import annotations

from types import ModuleType

from . import compile

TECHNIQUES: tuple[ModuleType, ...] = (compile,)
"""The modules of this package, one a technique, in the order of ``spec.techniques``."""
