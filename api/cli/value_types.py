"""Types of flag values: whole numbers, numbers, names, files.

Each refuses in one line that names the flag, the typed value, what is allowed and the nearest
allowed value: ``512.0``, ``1e3``, ``512k`` and ``-8`` are not counts, but easily meant as one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ...spec.errors import InputError
from ...spec.inputs.token_count import token_count
from ...spec.limits import MAX_SAMPLES

if TYPE_CHECKING:
    IntType = click.ParamType[int]
    FloatType = click.ParamType[float]
    StrType = click.ParamType[str]
else:  # older releases of click have no type parameters
    IntType = FloatType = StrType = click.ParamType

LONGEST_DIGITS = 15
SUFFIXES = {"k": (1024, 1000), "m": (1024**2, 10**6), "b": (10**9,), "g": (1024**3, 10**9)}
BYTES_TEXT = re.compile(r"([\d.]+)\s*(gb|gib|g|mb|mib|tb|tib)", re.IGNORECASE)
GIB_OF = {
    "gb": 1e9 / 2**30,
    "mb": 1e6 / 2**30,
    "mib": 2**-10,
    "tb": 1e12 / 2**30,
    "tib": 2**10,
    "g": 1.0,
    "gib": 1.0,
}


def flag_of(param: click.Parameter | None) -> str:
    """A parameter's name as typed on the command line."""
    if param is None:
        return "value"
    if isinstance(param, click.Argument):
        return param.metavar or str(param.name)
    return max(param.opts, key=len)


class WholeNumberParam(IntType):
    """Count in plain digits.

    Args:
        least: smallest allowed.
        most: largest allowed.
        usual: named where nothing nearer can be.
    """

    name = "N"

    def __init__(self, least: int = 1, most: int = MAX_SAMPLES, usual: int | None = None) -> None:
        self.least, self.most, self.usual = least, most, usual

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or an InputError."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) and self.least <= int(text) <= self.most:
            return int(text)
        allowed = f"a whole number of at least {self.least}, in plain digits"
        if re.fullmatch(r"[0-9]+", text, re.ASCII) and text.strip("0"):
            allowed = f"a whole number from {self.least} to {self.most}"
        raise InputError(flag_of(param), str(value), allowed, self._nearest(text))

    def _nearest(self, text: str) -> str | int | None:
        plain = text.casefold().replace(",", "").replace("_", "").replace(" ", "")
        unit = SUFFIXES.get(plain[-1:], ())
        if plain.isdecimal() and len(plain.lstrip("0")) > LONGEST_DIGITS:
            return self.most
        number = _finite(plain[:-1] if unit else plain)
        if number is None or number == 0:
            return self.usual if number is None else max(self.least, 1)
        whole = [max(1, round(abs(number) * factor)) for factor in unit or (1,)]
        near = dict.fromkeys(max(self.least, min(self.most, n)) for n in whole)
        return " or ".join(str(n) for n in near)


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None


class NumberParam(FloatType):
    """Finite number above ``above``.

    Args:
        above: exclusive lower limit.
        most: largest allowed.
        unit: of the number, such as GiB; named in errors.
    """

    name = "NUMBER"

    def __init__(self, above: float = 0.0, most: float = 2.0**40, unit: str = "") -> None:
        self.above, self.most, self.unit = above, most, unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or an InputError."""
        if isinstance(value, float):
            return value
        number = _finite(str(value).strip())
        if number is not None and self.above < number <= self.most:
            return number
        unit = f" of {self.unit}" if self.unit else ""
        allowed = f"a number{unit} above {self.above:g} and at most {self.most:.12g}"
        raise InputError(flag_of(param), str(value), allowed, self._nearest(str(value), number))

    def _nearest(self, text: str, number: float | None) -> str | None:
        if self.unit == "GiB" and (sized := BYTES_TEXT.fullmatch(text.strip())):
            size = _finite(sized[1])
            return None if size is None else f"{size * GIB_OF[sized[2].casefold()]:.4g}"
        if not self.unit and text.strip().endswith("%"):
            number = _finite(text.strip()[:-1])
            number = None if number is None else number / 100
        if number is not None and number < 0:
            number = -number
        if number is None or not self.above < number <= self.most:
            return f"{self.most:g}" if number is not None and number > self.most else None
        return f"{number:g}"


class TokenCountParam(IntType):
    """Number of tokens: ``2T``, ``300B``, ``15e12`` or plain digits."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or an InputError."""
        return token_count(value, flag_of(param))


class NameParam(StrType):
    """Name that is checked later; ``names`` completes it in a shell."""

    def __init__(self, metavar: str, names: Callable[[], Iterable[str]]) -> None:
        self.name = metavar
        self._names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The metavar in its own case: ``none`` and ``local`` are typed so."""
        return self.name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names with the typed beginning."""
        start = incomplete.casefold()
        return [CompletionItem(n) for n in self._names() if n.casefold().startswith(start)]


class InputFileParam(StrType):
    """File to read, completed by the shell."""

    name = "FILE"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """File names."""
        return [CompletionItem(incomplete, type="file")]


class OutputFileParam(InputFileParam):
    """File to write; ``-`` means standard output where sensible."""

    name = "FILE"

    def __init__(self, dash: bool = False) -> None:
        self._dash = dash
        self.name = "FILE|-" if dash else "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; another flag or nothing is refused."""
        text = str(value)
        if text == "-" and self._dash:
            return text
        if not text.strip() or text.startswith("-"):
            allowed = "a file to write" + (", or - for the standard output" if self._dash else "")
            raise InputError(flag_of(param), text, allowed, "-" if self._dash else None)
        return text
