"""axolotl among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .limits import narrow
from .read import read, recognizes

FRAMEWORK = Framework(
    name="axolotl",
    title="axolotl",
    stack="transformers",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: False,
)

__all__ = ["FRAMEWORK"]
