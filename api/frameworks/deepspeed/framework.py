"""DeepSpeed among the frameworks."""

from __future__ import annotations

from ..framework import Framework
from .launch import ARGUMENTS_FILE, launch
from .limits import narrow
from .read import read, recognizes
from .write import write

FRAMEWORK = Framework(
    name="deepspeed",
    title="DeepSpeed",
    stack="deepspeed",
    recognizes=recognizes,
    read=read,
    narrow=narrow,
    says_model=lambda model: False,
    main_file=ARGUMENTS_FILE,
    outside=("seq_len",),
    write=write,
    launch=launch,
)

__all__ = ["FRAMEWORK"]
