"""Numbers of tokens as people write them."""

from __future__ import annotations

import pytest

from shardwright.spec.errors import InputError
from shardwright.spec.inputs.token_count import token_count


@pytest.mark.parametrize(
    ("typed", "tokens"),
    [
        ("2T", 2 * 10**12), ("2t", 2 * 10**12), ("15e12", 15 * 10**12), ("300B", 3 * 10**11),
        ("300G", 3 * 10**11), ("10_000M", 10**10), ("1.5T", 15 * 10**11), ("4 k", 4000),
        ("1", 1), (7, 7), (15e12, 15 * 10**12), ("1e18", 10**18), (10**18, 10**18),
        ("1.000001e6", 1_000_001),
    ],
)  # fmt: skip
def test_what_is_meant(typed: object, tokens: int) -> None:
    assert token_count(typed, "--tokens") == tokens


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("2TB", "2T"), ("2 trillion", "2T"), ("1,000,000", "1000000"), ("-5", "5"), ("0", "1"),
        ("0.5", "1"), ("two", "300B"), ("", "300B"), ("1e30", "1e18"), ("2.5", "2"), (1.5, "1"),
        (True, "300B"), (float("inf"), "300B"), (float("nan"), "300B"), (None, "300B"),
        ("9" * 40, "1e18"), ([2], "2"),
    ],
)  # fmt: skip
def test_what_is_not_a_number_of_tokens_has_a_nearest_one(typed: object, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        token_count(typed, "--tokens")
    assert caught.value.field == "--tokens"
    assert caught.value.nearest == nearest
