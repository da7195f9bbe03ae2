"""The command's own document, to hold a tool's answer against."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from shardwright.api.cli.main import run


@pytest.fixture
def plan_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A function from a command line's words to its JSON document."""

    def document(*words: str) -> Any:
        capsys.readouterr()
        assert run((*words, "--json", "-")) == 0
        return json.loads(capsys.readouterr().out)

    return document
