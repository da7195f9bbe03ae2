"""Children: turns of those who wait for one, warm before they are ready, faults in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from shardwright.api.server.compute import operations
from shardwright.api.server.compute.pool import ChildPool, PoolBusyError, PoolLimits, _ChildProcess
from shardwright.api.server.compute.warm_up import warm_up
from shardwright.api.server.logs import fault_fields


def test_peers_take_turns_at_the_children() -> None:
    async def run() -> list[str]:
        pool = ChildPool(PoolLimits(children=0, waiting=6, waiting_of_peer=4))
        order: list[str] = []

        async def take(peer: str) -> None:
            await pool._take(5.0, peer)
            order.append(peer)

        tasks = [asyncio.create_task(take(peer)) for peer in ("a", "a", "a", "a", "b")]
        await asyncio.sleep(0.01)
        with pytest.raises(PoolBusyError):
            await take("a")
        for _ in tasks:
            child: Any = _ChildProcess(_FakeProcess())  # type: ignore[arg-type]
            pool._idle.put_nowait(child)
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert not pool._turns
        await pool.close()
        return order

    assert asyncio.run(run()) == ["a", "b", "a", "a", "a"]


class _FakeProcess:
    returncode = None
    pid = 0


def test_a_child_is_ready_once_it_has_answered_a_request_of_each_kind() -> None:
    assert set(warm_up().values()) == {200}

    async def run() -> None:
        pool = ChildPool(PoolLimits(children=1))
        pool.start()
        try:
            while not pool._all:
                await asyncio.sleep(0.01)
            assert not pool.ready  # it lives, and loads
            ends_s = time.monotonic() + 40
            while not pool.ready and time.monotonic() < ends_s:
                await asyncio.sleep(0.02)
            start_s = time.monotonic()
            assert (await pool.call("simulation", b"", 10.0, 10.0))[0] == 422
            assert time.monotonic() - start_s < 0.5
        finally:
            await pool.close()

    asyncio.run(run())


def test_a_fault_of_a_child_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(body: Any) -> Any:
        raise KeyError("secret")

    faults: list[Exception] = []
    monkeypatch.setattr(operations, "handle_simulation", broken)
    body = json.dumps(
        {"model": "gpt2", "cluster": "2xH100", "workload": {"global_batch": 4, "seq_len": 64}}
    )
    status, answer = operations.run_operation(
        "simulation", body.encode(), 5.0, on_fault=faults.append
    )
    assert status == 500
    told = fault_fields(faults[0])
    assert told["error"] == "KeyError"
    assert told["place"].startswith("test_children.py:")
    head = {"status": 500, "fault": {"operation": "simulation", **told}, "length": len(answer)}

    async def receive() -> tuple[int, bytes]:
        process = _FakeProcess()
        process.stdout = asyncio.StreamReader()  # type: ignore[attr-defined]
        process.stdout.feed_data(json.dumps(head).encode() + b"\n" + answer)  # type: ignore[attr-defined]
        return await _ChildProcess(process).receive()  # type: ignore[arg-type]

    with caplog.at_level(logging.ERROR, "shardwright.serve"):
        assert asyncio.run(receive()) == (500, answer)
    [record] = caplog.records
    assert (record.msg, record.fields["error"]) == ("child_fault", "KeyError")  # type: ignore[attr-defined]
    assert "secret" not in str(vars(record))
