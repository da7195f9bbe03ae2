"""An error is one printable line, whatever it quotes."""

from __future__ import annotations

import pytest

from shardwright.spec.errors import InputError, NotBuiltError, ShardwrightError

ODD = "ü\u202e\n\x00" + "x" * 5000


@pytest.mark.parametrize(
    "error",
    [NotBuiltError(f"hidden_act {ODD}", f"nearest: {ODD}"), InputError(ODD, ODD, ODD, ODD)],
    ids=["not built", "input"],
)
def test_an_error_is_one_printable_line(error: ShardwrightError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1300
    assert "\\u202e" in str(error)
