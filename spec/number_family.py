"""NumberFamily: values of a technique that one number tells apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import InputError

DIGITS = 4
"""Decimals of a family's number, so that a value has one word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFamily:
    """Values typed ``WORD:NUMBER``, such as ``swap:0.4667``.

    Attributes:
        word: before the colon.
        low: the least number.
        high: the greatest number.
        make: the value of a number; two numbers may not have one value.
        number_of: the number of a value; None: it is not one of the family.
        above_chord: True if the work of a value on every stream, before any of it hides, and its
            bytes of every tier lie on or above the straight line between those of two others.
            Then a search holds the ends alone, whose bounds hold for all numbers, and refines the
            number on the plans that it finds: what hides is best somewhere between.
    """

    word: str
    low: float
    high: float
    make: Callable[[float], Any]
    number_of: Callable[[Any], float | None]
    above_chord: bool = False

    @property
    def form(self) -> str:
        """How its values are typed, for errors and completion."""
        return f"{self.word}:{self.low:g}..{self.high:g}"

    @property
    def ends(self) -> tuple[Any, Any]:
        """Values of the least and the greatest number."""
        return self.make(self.low), self.make(self.high)

    def word_of(self, number: float) -> str:
        """The word of the value of a number."""
        return f"{self.word}:{round(number, DIGITS):g}"

    def value(self, text: str, field: str) -> Any:
        """The value of a typed number.

        Raises:
            InputError: no number, or one outside the family; ``field`` says where it was given.
        """
        allowed = f"{self.word}: and a number from {self.low:g} to {self.high:g}"
        typed = f"{self.word}:{text}"
        try:
            number = float(text)
        except ValueError:
            raise InputError(field, typed, allowed, self.word_of(self.high)) from None
        if not self.low <= number <= self.high:  # which no NaN is either
            nearest = self.low if number < self.low else self.high
            raise InputError(field, typed, allowed, self.word_of(nearest))
        return self.make(round(number, DIGITS))
