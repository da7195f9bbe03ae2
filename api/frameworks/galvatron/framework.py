"""Galvatron among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import CONFIG_FILE, launch
from .layerwise import layerwise_plan
from .limits import narrow
from .read import read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="galvatron",
    title="Galvatron",
    stack="galvatron",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: False,
    main_file=CONFIG_FILE,
    outside=("seq_len", "dtype"),
    write=write,
    launch=launch,
    layerwise=layerwise_plan,
)

__all__ = ["FRAMEWORK"]
