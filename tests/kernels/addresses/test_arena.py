"""The arena of cores: planned requests have their addresses, all others torch's own memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shardwright.executor.tracing.allocations import least_trace, recorded_trace
from shardwright.kernels.addresses import compiler
from shardwright.kernels.addresses.arena import CoreArena
from shardwright.planner.addresses.ranks import rank_addresses
from shardwright.spec.errors import RunError
from shardwright.spec.report.allocation_trace import AllocationTrace, Request
from shardwright.spec.report.planned_addresses import RankAddresses

PAGE = 4096
PLAN = RankAddresses(
    passes=(0, 2),
    sections=(0, 2, 3, 4),
    sizes=(PAGE, 2 * PAGE, PAGE, PAGE),
    offsets=(0, PAGE, 3 * PAGE, -1),
    untils=(3, 4, 3, 4),
    arena_bytes=4 * PAGE,
    live_bytes=4 * PAGE,
    by="",
)
"""Two requests, a mark and another one in the first pass; one that lasts in the second."""


@pytest.fixture
def arena() -> Iterator[CoreArena]:
    made = CoreArena()
    yield made
    made.close()


def pages(count: int) -> torch.Tensor:
    return torch.empty(count * PAGE, dtype=torch.uint8)


def test_planned_requests_have_their_addresses(arena: CoreArena) -> None:
    arena.plan(PLAN)
    arena.begin(0)
    first, second = pages(1), pages(2)
    arena.mark()
    third = pages(1)
    arena.end()
    base = first.data_ptr()
    assert [t.data_ptr() - base for t in (second, third)] == [PAGE, 3 * PAGE]
    assert (arena.counts().served, arena.counts().unplanned) == (3, 0)
    for number, tensor in enumerate((first, second, third)):
        tensor.fill_(number)
    assert arena.resident_bytes() == PLAN.arena_bytes
    assert [int(t.unique()) for t in (first, second, third)] == [0, 1, 2]
    arena.begin(1)
    lasting = pages(1)
    arena.end()
    assert not 0 <= lasting.data_ptr() - base < PLAN.arena_bytes
    assert arena.counts().lasting == 1


def test_what_is_not_as_planned_shares_nothing_with_live_tensors(arena: CoreArena) -> None:
    arena.plan(PLAN)
    held = []
    for _ in range(2):  # the first pass again, while all of it lives
        arena.begin(0)
        held += [pages(3), pages(1), pages(2)]  # one more than planned
        arena.mark()
        arena.end()  # one less
    for number, tensor in enumerate(held):
        tensor.fill_(number)
    assert [int(t.unique()) for t in held] == list(range(len(held)))
    counts = arena.counts()
    assert (counts.served, counts.extra, counts.occupied, counts.missing) == (2, 2, 2, 2)
    outside = pages(1)
    assert arena.counts().other >= 1
    arena.forget()
    assert int(held[1].unique()) == 1  # what lives in the arena keeps it
    assert outside.numel() == PAGE


def test_a_recorded_step_is_replayed_as_it_was(arena: CoreArena) -> None:
    def step() -> list[int]:
        arena.begin(0)
        kept = pages(2)
        gone = pages(1)
        place = gone.data_ptr()
        del gone
        arena.mark()
        again = pages(1)
        arena.end()
        places = [place - kept.data_ptr(), again.data_ptr() - kept.data_ptr()]
        del kept, again
        return places

    arena.record()
    step()
    trace = recorded_trace(arena.recorded())
    assert [request.bytes for request in trace.requests] == [2 * PAGE, PAGE, PAGE]
    assert trace.lasting == frozenset()
    assert trace.section_starts() == (0, 2, 3, 3)
    found = rank_addresses(trace)
    assert found.arena_bytes == found.live_bytes == 3 * PAGE
    arena.plan(found)
    assert step() == [2 * PAGE, 2 * PAGE]
    assert arena.counts().unplanned == 0


def test_what_is_released_late_in_one_step_is_not_in_another() -> None:
    steps = [
        AllocationTrace(requests=(Request(8, 0, a), Request(4, 1, b)), sections=(0,), passes=(0,))
        for a, b in ((1, 5), (4, 2))
    ]
    longer = AllocationTrace(requests=(Request(8, 0, 1), Request(8, 1, 2), Request(4, 2, 3)))
    found = least_trace([longer, *steps])
    assert found.requests == (Request(8, 0, 1), Request(4, 1, 2))
    assert (found.sections, found.passes) == ((0,), (0,))


def test_without_a_compiler_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RunError, match=r"g\+\+ or clang\+\+ is not here: install one") as caught:
        compiler.compiled_library("arena")
    assert caught.value.exit_code == 4
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RunError, match="no-such-compiler is not here"):
        compiler.compiled_library("arena")
