"""A search's child that ends: by its own limit, or killed from outside, or by a fault of ours."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from service.request_bodies import PLAN, SLOW

from shardwright.api.server.compute.child import OUT_OF_MEMORY, met_own_limit
from shardwright.api.server.jobs.workers.attempt import _lost_problem
from shardwright.api.server.jobs.workers.search_child import ChildLostError, SearchChild
from shardwright.api.server.problems import TOO_LARGE

NOTHING_LENT: dict[str, object] = {"known": [], "found": None}


@pytest.fixture
def child() -> Iterator[SearchChild]:
    made = SearchChild()
    yield made
    made.kill()
    made._folder.cleanup()


def _killed(child: SearchChild, number: int, times: int, body: object) -> int:
    """Run a search whose child gets a signal at its first events; how often it did."""
    killed: list[int] = []

    def kill(name: str, text: bytes) -> None:
        assert child._process is not None
        if len(killed) < times and child._process.pid not in killed:
            killed.append(child._process.pid)
            os.kill(child._process.pid, number)

    text = json.dumps(body).encode()
    status, _, cancelled = child.run("plan", text, 60.0, kill, lambda: False, NOTHING_LENT)
    assert (status, cancelled) == (200, False)
    return len(killed)


def test_a_child_that_is_killed_once_costs_nothing(child: SearchChild) -> None:
    assert _killed(child, signal.SIGKILL, 1, PLAN) == 1


def test_one_that_is_killed_twice_says_so(child: SearchChild) -> None:
    with pytest.raises(ChildLostError) as lost:
        _killed(child, signal.SIGKILL, 3, SLOW)
    assert lost.value.reason == "killed"
    document = _lost_problem(lost.value, 60)
    assert document["status"] == 500
    assert document["detail"].startswith("its child was killed from outside twice")


def test_one_that_used_up_its_processor_time_is_not_tried_again(child: SearchChild) -> None:
    with pytest.raises(ChildLostError) as lost:
        _killed(child, signal.SIGXCPU, 1, SLOW)
    assert lost.value.reason == "limits"
    assert _lost_problem(lost.value, 60)["type"].endswith(TOO_LARGE)


def test_limits_of_its_own_are_memory_and_processor_time() -> None:
    assert met_own_limit(OUT_OF_MEMORY)
    assert met_own_limit(-signal.SIGXCPU)
    assert not any(map(met_own_limit, (None, 0, 1, -signal.SIGKILL, -signal.SIGSEGV)))
