"""What the first screen of help names, and that its examples can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from shardwright.api.problem.resolve import Inputs, resolve

Plan = Callable[..., Any]
SCREEN = 24
"""Lines of a terminal that nobody enlarged."""


@pytest.fixture(scope="module")
def text() -> str:
    """The help of ``plan``."""
    from click.testing import CliRunner

    from shardwright.api.cli.main import cli

    return CliRunner().invoke(cli, ["--help"], prog_name="plan").output


def test_the_first_screen_names_every_verb(text: str) -> None:
    screen = "\n".join(text.splitlines()[:SCREEN])
    for verb in ("models", "clusters", "doctor", "simulate", "what-if", "execute", "serve"):
        assert re.search(rf"^  {verb} ", screen, re.MULTILINE), verb
    assert text.index("Commands:") < text.index("Options:") < text.index("Examples:")


def _examples(text: str) -> list[list[str]]:
    whole = re.sub(r" *\\\n *", " ", text.partition("Examples:")[2])
    lines = [re.sub(r"  +.*", "", line.strip()) for line in whole.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("plan --model")]


def test_its_examples_are_questions_that_can_be_asked(text: str) -> None:
    examples = _examples(text)
    assert len(examples) == 3
    problems = []
    for words in examples:
        flags = dict(zip(words[::2], words[1::2], strict=True))
        names = {flag.removeprefix("--").replace("-", "_"): value for flag, value in flags.items()}
        numbers = {key: int(names.pop(key)) for key in ("global_batch", "seq_len")}
        problems.append(resolve(Inputs(**names, **numbers)))
    _, adapters, pure = problems
    assert adapters.workload.adapters is not None
    assert len(adapters.workload.adapters.targets) == 7
    dtype = pure.workload.dtype
    assert {dtype.param, dtype.gradient, dtype.master, dtype.moments} == {"bf16"}
    (why,) = [note.why for note in pure.assumptions if note.path == "workload.dtype"]
    assert why == "not given; bf16 with states as given"
