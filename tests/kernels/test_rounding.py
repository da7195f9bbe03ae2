"""Random bits from a place alone, the same everywhere, and rounding that is right on average."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_doubles.kernel_devices import DEVICES, dispatchers

from shardwright.kernels.rounding import (
    Philox,
    philox_rounds,
    random_words,
    stochastic_round,
    uniforms,
)
from shardwright.spec.errors import InputError

# Known answers that its authors publish with Philox-4x32-10: counter, key, words.
ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words_of(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_philox_gives_its_authors_answers(counter: str, key: str, answer: str) -> None:
    low, high = words_of(key)
    found = philox_rounds(tuple(torch.tensor(word) for word in words_of(counter)), (low, high))
    assert [int(word) for word in found] == words_of(answer)


@DEVICES
@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 + 3, 2**40 + 7, 2**63 - 1])
@pytest.mark.parametrize("first", [0, 2**31 - 5, 2**32 - 5, 2**50 + 1])
def test_tritons_philox_gives_the_same_words(seed: int, first: int, device: str) -> None:
    dispatchers(device)
    from kernel_doubles import philox_kernel

    counters = torch.arange(16, device=device) + first
    found = philox_kernel.words(seed, first, 16, device)
    assert torch.equal(found, random_words(seed, counters))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62))
def test_uniforms_are_in_the_half_open_interval(seed: int, first: int) -> None:
    found = uniforms(random_words(seed, torch.arange(64) + first))
    assert found.dtype == torch.float32
    assert bool(((found >= 0) & (found < 1)).all())
    largest, smallest = uniforms(torch.tensor([2**32 - 1, 255]))
    assert (float(largest), float(smallest)) == (1 - 2.0**-24, 0)


def test_rounding_by_chance_is_right_on_average() -> None:
    x = torch.tensor([-6.75, -0.5, -1e-3, 0.0, 0.125, 2.9, 5.0])
    draws = 20_000
    uniform = uniforms(random_words(5, torch.arange(draws)))[:, 0:1]
    rounded = stochastic_round(x, uniform).double()
    fraction = (x - x.floor()).double()
    standard_error = (fraction * (1 - fraction) / draws).sqrt()
    assert bool(((rounded.mean(0) - x).abs() <= 4 * standard_error).all())
    assert bool(((rounded == x.floor()) | (rounded == x.ceil())).all())


@pytest.mark.parametrize("wrong", [Philox(-1), Philox(2**63), Philox(0, -1), Philox(0, 2**63)])
def test_a_stream_out_of_range_is_refused(wrong: Philox) -> None:
    with pytest.raises(InputError, match=r"(seed|offset): got .*; allowed: 0 to 2\*\*63 - 1"):
        wrong.checked()
