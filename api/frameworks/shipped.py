"""The frameworks whose files are read and written."""

from __future__ import annotations

from ...spec.errors import InputError, nearest_name
from .accelerate.framework import FRAMEWORK as ACCELERATE
from .axolotl.framework import FRAMEWORK as AXOLOTL
from .deepspeed.framework import FRAMEWORK as DEEPSPEED
from .framework import Framework
from .framework_file import FrameworkFile
from .galvatron.framework import FRAMEWORK as GALVATRON
from .llama_factory.framework import FRAMEWORK as LLAMA_FACTORY
from .megatron.framework import FRAMEWORK as MEGATRON
from .megatron_bridge.framework import FRAMEWORK as MEGATRON_BRIDGE
from .torchtitan.framework import FRAMEWORK as TORCHTITAN
from .verl.framework import FRAMEWORK as VERL

FRAMEWORKS: tuple[Framework, ...] = (
    MEGATRON,
    MEGATRON_BRIDGE,
    TORCHTITAN,
    DEEPSPEED,
    ACCELERATE,
    GALVATRON,
    VERL,
    AXOLOTL,
    LLAMA_FACTORY,
)
WRITTEN = tuple(item.name for item in FRAMEWORKS if item.write is not None)
"""Frameworks whose files are written."""


def framework_named(name: str, flag: str, *, written: bool = False) -> Framework:
    """The framework of a name.

    Args:
        name: as typed.
        flag: that it was typed for.
        written: only those whose files are written.

    Raises:
        InputError: there is none.
    """
    names = WRITTEN if written else tuple(item.name for item in FRAMEWORKS)
    for item in FRAMEWORKS:
        if item.name == name and name in names:
            return item
    raise InputError(flag, name, ", ".join(names), nearest_name(name, names, count=1))


def kinds_of(file: FrameworkFile) -> tuple[Framework, ...]:
    """The frameworks whose keys a file has."""
    return tuple(item for item in FRAMEWORKS if item.recognizes(file))


def framework_of(file: FrameworkFile, name: str | None) -> Framework:
    """The framework of a file: as typed, or found by looking.

    Raises:
        InputError: no framework of that name, none that fits, or several.
    """
    if name is not None:
        return framework_named(name, "--from")
    kinds = kinds_of(file)
    if len(kinds) == 1:
        return kinds[0]
    names = [item.name for item in kinds or FRAMEWORKS]
    if kinds:
        given, allowed = f"keys of {' and '.join(names)}", f"--from {' or '.join(names)}"
        raise InputError(file.path, given, allowed)
    seen = ", ".join(list(file.keys)[:4])
    raise InputError(file.path, f"keys {seen} …", f"a file of {', '.join(names)}, or --from")
