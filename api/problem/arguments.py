"""Python arguments: type checks, and argument names in errors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ...spec.errors import InputError, MissingInputError
from ...spec.techniques import TECHNIQUES
from .names import unknown_argument

TYPE_NAMES = {"int": "a whole number", "float": "a finite number", "str": "a text"}
P = ParamSpec("P")
R = TypeVar("R")


def check_types(record: Any) -> None:
    """Refuse wrong types in int, float, str or optional fields.

    ``True`` is no number, and ``64.0`` and ``"64"`` are no whole ones.

    Raises:
        InputError: the first wrong field, named as its flag.
    """
    for item in fields(record):
        value, kind = getattr(record, item.name), str(item.type).split(" ")[0]
        if value is not None and kind in TYPE_NAMES and not _has_type(value, kind):
            flag = f"--{item.name.replace('_', '-')}"
            raise InputError(flag, repr(value), TYPE_NAMES[kind], _nearest(value, kind))


def _has_type(value: Any, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int)
    return isinstance(value, (int, float)) and math.isfinite(value)


def _nearest(value: Any, kind: str) -> str | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if kind == "str" or isinstance(value, bool) or not math.isfinite(number):
        return None
    return str(round(number)) if kind == "int" else f"{number:g}"


def _argument(flag: str) -> str:
    return flag.replace("--", "").replace("-", "_")


def arguments_named(function: Callable[P, R]) -> Callable[P, R]:
    """Check the names of arguments, and name them instead of flags in errors.

    Where ``function`` has ``techniques``, the name of each is a keyword too, as its flag is.
    """
    signature = _with_techniques(inspect.signature(function))
    own = inspect.signature(function).parameters

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in signature.parameters:
                raise unknown_argument(name, signature.parameters, kwargs[name])
        words = {name: kwargs.pop(name) for name in list(kwargs) if name not in own}
        given: Any = kwargs.get("techniques") or {}
        if words and isinstance(given, Mapping):
            kwargs["techniques"] = {**given, **words}
        try:
            return function(*args, **kwargs)
        except MissingInputError as error:
            near = ", ".join(f"{_argument(flag)}={n}" for flag, n in error.usual.items())
            raise InputError(_argument(error.field), "nothing", error.allowed, near) from None
        except InputError as error:
            if not error.field.startswith("--"):
                raise
            name = "for_" if error.field == "--for" else _argument(error.field)
            name = "pins" + name.removeprefix("pin") if name.split()[0] == "pin" else name
            raise InputError(name, error.given, error.allowed, error.nearest) from None

    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    return wrapped


def _with_techniques(signature: inspect.Signature) -> inspect.Signature:
    if "techniques" not in signature.parameters:
        return signature
    words = [
        inspect.Parameter(
            item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
        )
        for item in TECHNIQUES
    ]
    return signature.replace(parameters=[*signature.parameters.values(), *words])


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Search options as passed by a caller."""

    pins: tuple[str, ...]
    top: int
    deadline_s: float | None
    oom_risk: float | None
    executable: bool
    prefer: str
    framework: str | None = None

    def check(self) -> None:
        """Refuse impossible options.

        Raises:
            InputError: a value of another type, or out of range.
        """
        check_types(self)
        if self.top < 0:
            raise InputError("--top", self.top, "a whole number from 0", 0)
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError("--deadline-s", self.deadline_s, "seconds above 0", 1)
