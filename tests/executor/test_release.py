"""What a job of a pool leaves behind: nothing of its engine, and no cache of its allocator."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardwright.executor.engine.engine import Engine
from shardwright.executor.host.transfers import release
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.tracing import step_memory
from shardwright.executor.train import job as train
from shardwright.profiler.overhead.probes import Probe, probe_plan

CORE = torch.device("cpu")
# Compilers may be loaded first, on a busy machine; and all that unit tests leave is looked through.
pytestmark = [pytest.mark.timeout(240), pytest.mark.distributed]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[RankContext]:
    store = tmp_path / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield RankContext(0, 1, CORE, 60.0, lambda event: None)
    dist.destroy_process_group()


@pytest.fixture
def no_collector(young_heap: None) -> Iterator[None]:
    """Only what asks for a collection gets one."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("verify", [False, True])
def test_an_engine_is_gone_before_what_comes_next(
    alone: RankContext, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    made: list[weakref.ref[Engine]] = []
    build, check = train.make_engine, train._verify
    verified: list[bool] = []

    def make_engine(*given: Any) -> Engine:
        assert not [engine for engine in made if engine() is not None]
        engine = build(*given)
        made.append(weakref.ref(engine))
        monkeypatch.setattr(gc, "enable", lambda: None)  # after the steps neither
        return engine

    def verify_(*given: Any) -> dict[str, Any]:
        verified.append(made[-1]() is None)
        return check(*given)

    monkeypatch.setattr(train, "make_engine", make_engine)
    monkeypatch.setattr(train, "_verify", verify_)
    plan = probe_plan(Probe(blocks=1), 1)
    payload = {"steps": 1, "random_tokens": True, "verify": verify, "trace": True}
    for _ in range(2):
        result = train.train(alone, {**payload, "plan": plan.to_document()})
        assert result is not None
        assert ("verify" in result) == verify
        assert made[-1]() is None
    assert verified == [True, True] * verify
    monkeypatch.undo()


def test_memory_is_given_back_before_a_step_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Followed:
        """Of an engine what is looked at, on a device that there need not be."""

        class options:  # noqa: N801
            device = torch.device("cuda", 0)

        def step(self) -> None:
            order.append("step")

        def resident_tensors(self) -> tuple[torch.Tensor, ...]:
            return ()

    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: order.append(name))
    for name in ("max_memory_allocated", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 7)
    found = step_memory.follow_step(Followed(), snapshot=False)  # type: ignore[arg-type]
    assert order == ["empty_cache", "reset_peak_memory_stats", "step"]
    assert (found.peak_bytes, found.reserved_bytes) == (7, 7)


def test_a_core_has_no_cache_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: pytest.fail("no device is asked"))
    release(CORE)
