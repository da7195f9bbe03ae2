"""verl among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import CONFIG_FILE, launch
from .limits import narrow
from .normal import normal, recognizes
from .read import read
from .write import write

FRAMEWORK = Framework(
    name="verl",
    title="verl",
    stack="verl",
    other_stacks=("megatron",),
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: False,
    normal=normal,
    main_file=CONFIG_FILE,
    write=write,
    launch=launch,
    by_node=False,  # Ray starts them
)

__all__ = ["FRAMEWORK"]
