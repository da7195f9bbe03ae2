"""Who has come to the ranks' meeting place, and which rank shows no sign of life before that."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from shardwright.executor.launch.activity import Activity
from shardwright.executor.launch.join import await_all_ranks
from shardwright.executor.launch.progress import JOINING
from shardwright.executor.launch.watchdog import Watchdog
from shardwright.spec.errors import RunError


def called(store: dist.Store, ranks: list[int], of: int, join_s: float) -> list[str]:
    """What each of some ranks is told; empty where all have come."""

    def come(rank: int) -> str:
        try:
            await_all_ranks(store, rank, of, join_s)
        except RunError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(come, ranks))


def test_everyone_comes() -> None:
    assert called(dist.HashStore(), [0, 1, 2], of=3, join_s=60.0) == [""] * 3


def test_those_who_do_not_come_are_named() -> None:
    told = called(dist.HashStore(), [0, 2], of=3, join_s=0.3)
    expected = "rank 1 of 3 did not join the others within 0 s after the one before "
    assert told == [f"{expected}(--join waits longer)"] * 2
    (told_of_many,) = called(dist.HashStore(), [3], of=20, join_s=0.1)
    assert told_of_many.startswith("ranks 0, 1, 2, 4, 5, 6, 7, 8, … of 20 did not join the others")


def test_each_one_who_comes_gives_the_next_its_time() -> None:
    """Ranks come one after another, each within the limit, all in twice as much."""
    store = dist.HashStore()
    with ThreadPoolExecutor(4) as threads:
        waiting = []
        for rank in range(4):
            waiting.append(threads.submit(await_all_ranks, store, rank, 4, 1.5))
            time.sleep(0.9 if rank < 3 else 0.0)
        for each in waiting:
            each.result()


def starting(where: str = "starting") -> Watchdog:
    watch = Watchdog(2, silent_after_s=5.0, stalled_after_s=10.0, missing_after_s=10.0)
    watch.begin("starting", "starting", 0.0)
    for rank, place in ((0, JOINING), (1, where)):
        watch.beat(rank, 1.0, {"count": 1, "where": place, "cpu_s": 0.5})
    return watch


def beat_idly(watch: Watchdog, ranks: list[int], until_s: int) -> None:
    for second in range(2, until_s):
        for rank in ranks:
            beat = {"count": 1, "where": watch.states[rank].where, "cpu_s": 0.5}
            watch.beat(rank, float(second), beat)


def test_a_rank_that_does_nothing_is_missing_and_those_that_wait_for_it_are_not() -> None:
    watch = starting()
    beat_idly(watch, [0, 1], 12)
    assert watch.missing(10.9) == []
    assert watch.missing(11.1) == [1]
    told = watch.diagnose(12.0).message
    assert told == "rank 1 did not join the others: it does nothing, in starting, for 11 s"


def test_a_rank_that_waits_and_no_longer_beats_is_missing() -> None:
    watch = starting(JOINING)
    beat_idly(watch, [0], 20)
    assert watch.missing(12.0) == [1]
    watch.states[1].stopped = True
    assert "rank 1 did not join the others: it is stopped, in joining the" in (
        watch.diagnose(12.0).message
    )


def test_a_process_that_works_is_only_slow() -> None:
    """Libraries are loaded by calls that keep all threads of the process from running."""
    watch = starting()
    beat_idly(watch, [0], 80)
    for second in range(2, 60):
        watch.note_cpu(1, float(second), busy_s=0.1 * second)
        assert watch.missing(float(second)) == []
    watch.note_cpu(1, 69.0, busy_s=5.91)  # what its heart alone takes
    assert watch.missing(69.5) == [1]
    watch.skip_gap(30.0)
    assert watch.missing(69.5) == []


def test_a_child_s_work_is_felt_from_outside() -> None:
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("this system does not tell")
    own = Activity(os.getpid())
    before_s, end_s = own.busy_s(), time.monotonic() + 0.3
    while time.monotonic() < end_s:
        pass
    assert own.busy_s() - before_s > 0.1
    assert Activity(2**22 + 1).busy_s() == 0.0
