"""What is asked of a search beside the problem."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.errors import InputError
from .argument_types import check_types


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Pins, how much to report, how long to search, and which risk to take."""

    pins: tuple[str, ...]
    top: int
    deadline_s: float | None
    oom_risk: float | None
    executable: bool
    prefer: str

    def check(self) -> None:
        """Refuse what no search can be asked for.

        Raises:
            InputError: a value of another type, or out of range.
        """
        check_types(self)
        if self.top < 0:
            raise InputError("--top", self.top, "a whole number from 0", 0)
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError("--deadline-s", self.deadline_s, "seconds above 0", 1)
