"""Problem: one broken rule of a noun, before any plan is made."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InputError


class Problem(NamedTuple):
    """One broken rule: the field, what it holds, what is allowed and the nearest that is."""

    field: str
    given: object
    allowed: str
    nearest: object = None

    @property
    def reason(self) -> str:
        """The problem in words, the field left out."""
        hint = "" if self.nearest is None else f"; nearest: {self.nearest}"
        return f"{self.given}; needs {self.allowed}{hint}"

    def error(self, where: str) -> InputError:
        """The error for a person who gave what ``where`` names."""
        return InputError(f"{where}: {self.field}", self.given, self.allowed, self.nearest)
