"""Runs from Python that measure the machine first."""

from __future__ import annotations

from typing import Any

import pytest

import shardwright as sw
from shardwright.api.execution import execution
from shardwright.api.notebook.measured_cores import measured_cores

QUESTION: dict[str, Any] = {"global_batch": 8, "seq_len": 64}


@pytest.mark.parametrize(
    ("cluster", "words", "ranks"),
    [
        ("local:2", {}, [2]),
        ("local:2", {"calibration": "none"}, []),
        ("8xH100", {}, []),
    ],
)
def test_only_cores_whose_profile_was_looked_for_are_measured(
    monkeypatch: pytest.MonkeyPatch, cluster: str, words: dict[str, str], ranks: list[int]
) -> None:
    asked: list[int] = []

    def ensure(devices: int, on_event: Any) -> str:
        asked.append(devices)
        return "profile"

    monkeypatch.setattr(execution, "ensure_profile", ensure)
    handle = sw.simulate("gpt2", cluster, **QUESTION, **words)
    assert measured_cores(handle.report) == ("profile" if ranks else None)
    assert asked == ranks
