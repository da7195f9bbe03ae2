"""An error is one printable line, whatever it quotes."""

from __future__ import annotations

import pytest

from shardwright.spec.errors import (
    InputError,
    MissingInputError,
    NotBuiltError,
    ShardwrightError,
)

ODD = "ü\u202e\n\x00" + "x" * 5000


@pytest.mark.parametrize(
    "error",
    [NotBuiltError(f"hidden_act {ODD}", f"nearest: {ODD}"), InputError(ODD, ODD, ODD, ODD)],
    ids=["not built", "input"],
)
def test_an_error_is_one_printable_line(error: ShardwrightError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1500
    assert "\\u202e" in str(error)


def test_missing_inputs_are_named_at_once_with_a_command() -> None:
    error = MissingInputError({"--global-batch": 64, "--seq-len": 4096})
    assert str(error) == (
        "--global-batch and --seq-len: got nothing; allowed: positive whole numbers, such as 64 "
        "and 4096; nearest: --global-batch 64 --seq-len 4096"
    )
    command = "plan --model m " + "--pin tp=8 " * 40 + error.flags
    assert str(MissingInputError(error.usual, command)).endswith(f"; nearest: {command}")
    one = MissingInputError({"--seq-len": 4096})
    assert "a positive whole number, such as 4096" in str(one)
