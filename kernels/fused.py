"""Requirements of fused kernels: a Triton device, and libraries.

Fused kernels are operations of the namespace ``shardwright``, so that a recorded run names them as
the lowering does and a compiler sees one opaque operation. On CPU, Triton's slow interpreter runs
them for checks, in a process started with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import torch

from .dispatch import Request

NAMESPACE = "shardwright"
MIN_CAPABILITY = (8, 0)
"""Compute capability from which Triton compiles bf16 arithmetic."""
MIN_LIGER = "0.8.5"
"""We call functions below its public classes, as they are from this release on."""
MAX_ROW = 65536
"""Numbers of a row that one program of its kernels holds."""
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]


@cache
def unusable(package: str, least: str = "0") -> str | None:
    """Return why a library is missing, too old or broken, or None.

    Args:
        package: import name; underscores stand for the distribution's hyphens.
        least: the oldest version with the functions as called here.
    """
    if find_spec(package) is None:
        return f"{package} is not installed"
    version = metadata.version(package.replace("_", "-"))
    if _numbers(version) < _numbers(least):
        return f"{package} {version} is older than {least}"
    try:
        import_module(package)
    except Exception as error:
        return f"{package} {version} does not load: {' '.join(str(error).split())[:120]}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def interpreted() -> bool:
    """Return True if this process runs Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def capability(index: int) -> tuple[int, int]:
    """Compute capability of a CUDA device."""
    return torch.cuda.get_device_capability(index)


def triton_unsupported(request: Request) -> str | None:
    """Return why Triton cannot run a request, or None."""
    kind = request.device.type
    if kind == "cuda":
        version = capability(request.device.index or 0)
        if version < MIN_CAPABILITY:
            return f"compute capability {version[0]}.{version[1]} is below 8.0"
    elif kind != "cpu":
        return f"no Triton for {kind}"
    elif not request.interpret:
        return "a core, for which Triton compiles nothing"
    elif not interpreted():
        return "a core, and Triton's interpreter is off (TRITON_INTERPRET=1)"
    if request.dtype not in FLOATS:
        return f"not for {str(request.dtype).removeprefix('torch.')}"
    return unusable("triton")


def liger_unsupported(request: Request) -> str | None:
    """Return why liger-kernel cannot run a request, or None."""
    return triton_unsupported(request) or unusable("liger_kernel", MIN_LIGER)


def liger_rows_unsupported(request: Request) -> str | None:
    """Like :func:`liger_unsupported`, for kernels that hold whole rows, (..., width)."""
    if reason := liger_unsupported(request):
        return reason
    width = request.shape[-1]
    return f"rows of {width} are wider than {MAX_ROW}" if width > MAX_ROW else None


def power_of_two(number: int) -> int:
    """Smallest power of two not below a positive number."""
    return 1 << (number - 1).bit_length()


def operation(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as the operation ``shardwright::NAME`` of a schema.

    Args:
        schema: ``name(Tensor x, ...) -> ...``, marking arguments that are written to.
        fake: the same for tensors without data: outputs of the right shapes and types.

    Returns:
        A decorator that replaces the function with the callable operation.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)  # type: ignore[no-untyped-call]

    def register(function: Callable[..., Any]) -> Any:
        _LIBRARY.impl(  # type: ignore[no-untyped-call]
            name, function, "CompositeExplicitAutograd"
        )
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return register
