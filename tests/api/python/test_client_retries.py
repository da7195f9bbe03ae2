"""A client that waits for a service: every sign of life renews its patience."""

from __future__ import annotations

import pytest

from shardwright.api.client import transport


def test_a_comment_of_a_stream_renews_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(transport.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(transport.time, "sleep", lambda _: None)
    pauses = transport._Backoff(10.0)
    lines = pauses.reset_by(iter([": alive", "data: 1"]))
    now[0] = 100.0
    assert next(lines) == ": alive"
    pauses.wait(RuntimeError("away"))  # ten seconds from the comment, not from the start
    now[0] = 200.0
    with pytest.raises(RuntimeError, match="away"):
        pauses.wait(RuntimeError("away"))
