"""Models that learn biases of scores run, and are priced, with attention that can learn them."""

from __future__ import annotations

import pytest

from shardwright.api.problem.resolve import Inputs, resolve


@pytest.mark.parametrize(
    ("model", "stack", "attention"),
    [
        ("t5-large", None, "unfused"),
        ("t5-large", "torchtitan", "flash"),
        ("bert-large", None, "flash"),
    ],
)
def test_the_usual_attention(model: str, stack: str | None, attention: str) -> None:
    problem = resolve(
        Inputs(model=model, cluster="8xA100-40GB", stack=stack, seq_len=512, global_batch=64)
    )
    assert problem.stack.attention == attention
    (note,) = [n for n in problem.assumptions if n.path == "stack.attention"]
    assert note.value == attention
    assert ("learns biases of scores" in note.why) == (attention == "unfused")


def test_what_is_typed_stands() -> None:
    asked = Inputs(
        model="t5-large", cluster="8xA100-40GB", attention="flash", seq_len=512, global_batch=64
    )
    assert resolve(asked).stack.attention == "flash"
