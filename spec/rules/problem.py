"""Problem: one broken rule of a noun, before any plan."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InputError


class Problem(NamedTuple):
    """One broken rule.

    Field, its value, the allowed values and the nearest of them.
    """

    field: str
    value: object
    allowed: str
    nearest: object = None

    @property
    def reason(self) -> str:
        """The problem as text, without the field."""
        hint = "" if self.nearest is None else f"; nearest: {self.nearest}"
        return f"{self.value}; needs {self.allowed}{hint}"

    def error(self, where: str) -> InputError:
        """The error for the input that ``where`` names."""
        return InputError(f"{where}: {self.field}", self.value, self.allowed, self.nearest)
