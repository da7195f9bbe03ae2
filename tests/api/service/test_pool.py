"""Children that answer at once and end meanwhile: by their own limit, or from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping

import pytest
from service.request_bodies import QUESTION

from shardwright.api.server.compute.pool import (
    ChildPool,
    NoAnswerError,
    PoolLimits,
    _ChildProcess,
)

BODY = json.dumps({**QUESTION, "strategy": {"tp": 1, "dp": 2}}).encode()


def _outcome(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> tuple[int | str, int]:
    """Of a request whose first children get a signal.

    An answer's status, or why there is none, and how many children were asked.
    """
    asked: list[int] = []
    call = _ChildProcess.call

    async def killed(
        self: _ChildProcess, header: Mapping[str, object], body: bytes
    ) -> tuple[int, bytes]:
        asked.append(self.process.pid)
        if len(asked) <= times:
            os.kill(self.process.pid, number)
        return await call(self, header, body)

    monkeypatch.setattr(_ChildProcess, "call", killed)

    async def run() -> int:
        pool = ChildPool(PoolLimits(children=1))
        pool.start()
        try:
            return (await pool.call("simulation", BODY, 60.0, 60.0))[0]
        finally:
            await pool.close()

    try:
        return asyncio.run(run()), len(asked)
    except NoAnswerError as error:
        return error.reason, len(asked)


@pytest.mark.parametrize(
    ("number", "times", "expected"),
    [
        (signal.SIGKILL, 1, (200, 2)),
        (signal.SIGKILL, 2, ("lost", 2)),
        (signal.SIGXCPU, 1, ("limits", 1)),
    ],
)
def test_only_a_childs_own_limit_ends_its_request_at_once(
    monkeypatch: pytest.MonkeyPatch, number: int, times: int, expected: tuple[int | str, int]
) -> None:
    assert _outcome(monkeypatch, number, times) == expected
