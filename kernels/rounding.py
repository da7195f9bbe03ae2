"""Rounding to nearest, or stochastically with reproducible random bits.

The bits are Philox-4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3",
section 3.3): ten rounds turn a counter of four 32-bit words and a key of two into four random
words. So an element's bits depend on its place alone, on any device, in any order. The mapping is
Triton's: the seed is the key, low word first; the counter holds 64 bits, low word first, and two
zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..spec.errors import InputError

WORDS = 4
"""Random words of 32 bits that a counter gives."""
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_LIMIT = 2**63


class Philox(NamedTuple):
    """Random bits: a stream (``seed``) and its first counter.

    Two uses of one stream are independent if their counters are disjoint; each user of a stream
    says how many counters it takes.
    """

    seed: int
    offset: int = 0

    def checked(self) -> Philox:
        """Return itself, checked.

        Raises:
            InputError: a number outside 0 … 2⁶³ - 1.
        """
        for name, value in zip(self._fields, self, strict=True):
            if not 0 <= value < _LIMIT:
                raise InputError(name, value, "0 to 2**63 - 1", min(max(value, 0), _LIMIT - 1))
        return self


def _product(factor: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of factor · x.

    All below 2³², without leaving 63 bits.
    """
    upper = (factor >> 16) * x
    lower = (factor & 0xFFFF) * x
    high = (upper + (lower >> 16)) >> 16
    low = (((upper & 0xFFFF) << 16) + lower) & _MASK
    return high, low


def philox_rounds(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox-4x32-10: four random words from four counter words, all int64 below 2³²."""
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        high_0, low_0 = _product(_MULTIPLIERS[0], c0)
        high_1, low_1 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ key[0], low_1, high_0 ^ c3 ^ key[1], low_0
        key = ((key[0] + _KEY_STEPS[0]) & _MASK, (key[1] + _KEY_STEPS[1]) & _MASK)
    return c0, c1, c2, c3


def random_words(seed: int, counters: Tensor) -> Tensor:
    """Four words per counter on a new last axis, int64 below 2³².

    Args:
        seed: 0 to 2⁶³ - 1.
        counters: int64, not negative, any shape.
    """
    zero = torch.zeros_like(counters)
    counter = (counters & _MASK, counters >> 32, zero, zero)
    return torch.stack(philox_rounds(counter, (seed & _MASK, seed >> 32)), dim=-1)


def uniforms(words: Tensor) -> Tensor:
    """Float32 in [0, 1) from each word's upper 24 bits, unrounded."""
    return (words >> 8).float() * 2.0**-24


def stochastic_round(x: Tensor, uniform: Tensor) -> Tensor:
    """Round up with the fraction's probability, else down: unbiased.

    The fraction is compared, not added to, so that no sum is rounded up to the next number.
    """
    low = x.floor()
    return low + (uniform < x - low)


__all__ = ["WORDS", "Philox", "philox_rounds", "random_words", "stochastic_round", "uniforms"]
