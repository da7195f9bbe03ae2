"""torchtitan among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .flavors import has_flavor
from .launch import CONFIG_FILE, launch
from .limits import narrow
from .read import read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="torchtitan",
    title="torchtitan",
    stack="torchtitan",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=has_flavor,
    main_file=CONFIG_FILE,
    write=write,
    launch=launch,
)

__all__ = ["FRAMEWORK"]
