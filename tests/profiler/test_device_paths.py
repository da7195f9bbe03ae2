"""The paths of GPUs, walked on a core: streams and events stand in, figures are not looked at."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler.cases.all_cases import Sizes, all_cases
from shardwright.profiler.timing import (
    copy_timing,
    kernel_timing,
    link_timing,
    overlap_timing,
    product_load,
)
from shardwright.spec.cluster.machine_profile import CopyRow

CORE = torch.device("cpu")
TINY = Sizes(sides=(8,), elements=(1024,), heads=(2,), sequences=(16,), head_dims=(8,))


class Stream:
    def __init__(self, device: torch.device) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: Stream | None = None) -> None:
        self.moment_s = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.moment_s - self.moment_s)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    made = torch.ones

    def ones(*shape: int, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        return made(*shape, **more)

    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(product_load, "SIDE", 8)
    monkeypatch.setattr(overlap_timing, "SHARED_BYTES", 2**12)
    monkeypatch.setattr(overlap_timing, "SHARED_S", 1e-4)
    monkeypatch.setattr(copy_timing, "BUDGET_S", 0.0)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[RankContext]:
    store = tmp_path / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield RankContext(0, 1, CORE, 60.0, lambda event: None)
    dist.destroy_process_group()


def test_copies_of_one_size() -> None:
    found = copy_timing._time_size(2**12, CORE)
    rows = [CopyRow(**what, payload_bytes=2**12, time_s=t.median_s) for what, t in found]
    ways = [(row.kind, row.pinned, row.both_ways) for row in rows]
    assert ways == [
        ("host_to_device", True, False),
        ("device_to_host", True, False),
        ("host_to_device", False, False),
        ("device_to_host", False, False),
        ("host_to_device", True, True),
        ("device_to_host", True, True),
        ("device_copy", False, False),
    ]


def test_launches_and_sharing(alone: RankContext) -> None:
    assert overlap_timing._launch_s(CORE) > 0
    assert 1 <= overlap_timing._slowdown(alone) <= 2


@pytest.mark.usefixtures("alone")
def test_a_collective_beside_products(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    products = product_load.MatmulLoad(CORE)
    monkeypatch.setattr(products, "start", started.append)
    (seconds, spread), is_over = link_timing._timed(lambda: None, 1e12, CORE, products)
    assert seconds >= 0
    assert spread >= 0
    assert not is_over
    assert len(started) == link_timing.RUNS
    assert min(started) >= 1


def test_a_case_rotates_over_copies_of_its_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timing, "copies_to_miss_cache", lambda size, device: 3)
    prepared: list[int] = []
    case = next(iter(all_cases(TINY, ("fp32",))))
    make = case.prepare

    def prepare() -> Any:
        prepared.append(1)
        return make()

    seconds, spread = kernel_timing._time_on_device(case._replace(prepare=prepare), CORE, 0.0)
    assert len(prepared) == 3
    assert seconds > 0
    assert spread >= 0
