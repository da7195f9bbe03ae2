"""Megatron-LM among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import ARGUMENTS_FILE, launch
from .limits import narrow
from .read import normal, read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="megatron",
    title="Megatron-LM",
    stack="megatron",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: True,
    normal=normal,
    main_file=ARGUMENTS_FILE,
    write=write,
    launch=launch,
)

__all__ = ["FRAMEWORK"]
