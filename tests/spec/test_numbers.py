"""Typed numbers and divisors: hostile texts and sizes stay one quick line."""

from __future__ import annotations

import time

import pytest

from shardwright.spec.errors import InputError, nearest_divisor
from shardwright.spec.numbers import whole_number
from shardwright.spec.strategy import Sharding
from shardwright.spec.units import format_bytes, format_count, format_number

NO_NUMBERS = ("", " 1", "1 ", "-1", "+1", "1.0", "1_000", "²", "٣", "1e3", "9" * 13, "9" * 5000)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_only_short_ascii_digits_are_numbers(text: str) -> None:
    assert whole_number(text) is None
    for typed in (f"hsdp:{text}", f"1/1/{text}"):
        with pytest.raises(InputError, match="--shard"):
            Sharding.from_text(typed, 8)


def test_ascii_digits_are_numbers() -> None:
    assert [whole_number(t) for t in ("0", "8", "007", "9" * 12)] == [0, 8, 7, 10**12 - 1]
    with pytest.raises(InputError, match="positive"):
        Sharding.from_text("hsdp:0", 8)
    assert Sharding.from_text("1/1/8", 8).optimizer == 8


def test_nearest_divisor_is_that_of_the_definition() -> None:
    for whole in range(1, 121):
        divisors = [d for d in range(1, whole + 1) if whole % d == 0]
        for given in range(1, 130):
            expected = min(divisors, key=lambda d: (abs(d - given), d))
            assert nearest_divisor(given, whole) == expected, (given, whole)


def test_nearest_divisor_of_a_huge_whole_is_quick() -> None:
    started = time.process_time()
    assert nearest_divisor(3, 2**40) == 2
    assert nearest_divisor(1000, 2**27) == 1024
    assert time.process_time() - started < 2


def test_what_a_person_reads_has_no_exponents() -> None:
    assert [format_number(x) for x in (0.91552, 764.94, 1053.2, 9999.7, 10612.4, 3.1e7)] == [
        "0.9155", "764.9", "1053", "10000", "10612", "31000000"
    ]  # fmt: skip
    assert format_bytes(1010 * 2**30) == "1010 GiB"
    assert format_bytes(999.7 * 2**30) == "1000 GiB"
    assert format_bytes(71.23 * 2**30) == "71.2 GiB"
    assert format_count(999.9e6) == "1000 M"
