"""The words of ``--prefer``."""

from __future__ import annotations

import pytest

from shardwright.spec.errors import InputError
from shardwright.spec.inputs.preference import simple_within


@pytest.mark.parametrize(
    ("text", "within"),
    [
        (None, 0.01),
        ("simple", 0.01),
        ("simple:3%", 0.03),
        ("simple:0.5", 0.005),
        ("simple:0%", 0.0),
        ("best", None),
    ],
)
def test_words_are_fractions(text: str | None, within: float | None) -> None:
    found = simple_within(text)
    assert found == within if within is None else found == pytest.approx(within)


@pytest.mark.parametrize(
    "text", ["fastest", "simple:", "simple:-1%", "simple:99%", "best:1%", "simple:x"]
)
def test_others_are_refused_with_the_nearest(text: str) -> None:
    with pytest.raises(InputError, match="--prefer"):
        simple_within(text)
