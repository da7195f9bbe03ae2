"""Megatron Bridge among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import CONFIG_FILE, launch
from .limits import narrow
from .read import normal, read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="megatron-bridge",
    title="Megatron Bridge",
    stack="megatron",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: True,
    normal=normal,
    main_file=CONFIG_FILE,
    write=write,
    launch=launch,
)

__all__ = ["FRAMEWORK"]
