"""Errors that name arguments, as Python has them, instead of flags."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ...spec.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def arguments_named(function: Callable[P, R]) -> Callable[P, R]:
    """Name arguments, not flags, in the errors of ``function``."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            if not error.field.startswith("--"):
                raise
            name = error.field.replace("--", "").replace("-", "_")
            name = "pins" + name.removeprefix("pin") if name.split()[0] == "pin" else name
            raise InputError(name, error.given, error.allowed, error.nearest) from None

    return wrapped
