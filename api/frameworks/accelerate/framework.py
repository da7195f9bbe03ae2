"""accelerate among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import CONFIG_FILE, launch
from .limits import narrow
from .read import read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="accelerate",
    title="accelerate",
    stack="accelerate",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: False,
    main_file=CONFIG_FILE,
    outside=("global_batch", "seq_len", "micro_batch", "optimizer", "recompute"),
    write=write,
    launch=launch,
)

__all__ = ["FRAMEWORK"]
