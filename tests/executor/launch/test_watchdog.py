"""What the launcher makes of heartbeats: standstill, and ranks that the others wait for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardwright.executor.launch import pool as pool_module
from shardwright.executor.launch.fault_injection import Fault, FaultList, attempt_of, faults_of
from shardwright.executor.launch.pool import PoolOptions, WorkerPool
from shardwright.executor.launch.watchdog import SLOW_BEATS, Watchdog
from shardwright.spec.errors import InputError, RunError

STAGES = [range(2), range(2, 3)]


def beating(shares: dict[int, float], busy: dict[int, float], beats: int = SLOW_BEATS) -> Watchdog:
    """Three ranks in two stages: how often each waits for others, and how busy it is."""
    watch = Watchdog(3, silent_after_s=5.0, stalled_after_s=10.0)
    watch.begin("running", "a job", 0.0)
    for second in range(1, beats + 1):
        for rank in range(3):
            waits = second * shares[rank] % 1 < shares[rank]
            beat = {"count": 0, "where": "a pass", "cpu_s": second * busy[rank], "waits": waits}
            watch.heard(rank, float(second))
            watch.beat(rank, float(second), beat)
    return watch


BUSY = dict.fromkeys(range(3), 0.9)


def test_a_rank_that_its_peers_wait_for_is_slow_and_told_of_once() -> None:
    watch = beating({0: 0.8, 1: 0.0, 2: 0.9}, BUSY)
    (told,) = watch.new_stragglers(STAGES)
    assert told == (
        "rank 1 is slow: the others of its stage wait for it 80% of the time, it waits 0%"
    )
    assert watch.new_stragglers(STAGES) == []


@pytest.mark.parametrize("shares", [{0: 0.5, 1: 0.3, 2: 0.0}, {0: 0.9, 1: 0.8, 2: 0.0}])
def test_ranks_that_wait_alike_or_in_other_stages_are_not_slow(shares: dict[int, float]) -> None:
    assert beating(shares, BUSY).new_stragglers(STAGES) == []


def test_a_few_heartbeats_say_nothing() -> None:
    assert beating({0: 0.8, 1: 0.0, 2: 0.9}, BUSY, SLOW_BEATS - 1).new_stragglers(STAGES) == []


def test_all_ranks_idle_is_a_standstill_and_one_at_work_is_none() -> None:
    idle = dict.fromkeys(range(3), 0.001)
    assert beating({0: 1.0, 1: 0.0, 2: 1.0}, idle).stalled(SLOW_BEATS)
    assert not beating({0: 1.0, 1: 0.0, 2: 1.0}, {**idle, 2: 0.1}).stalled(SLOW_BEATS)
    failure = beating({0: 1.0, 1: 0.0, 2: 1.0}, idle).diagnose(SLOW_BEATS)
    assert failure.message == (
        "rank 1 hangs in a pass, and the others wait for it: rank 0 is in a pass, "
        "rank 2 is in a pass"
    )
    everyone = beating(dict.fromkeys(range(3), 1.0), idle).diagnose(SLOW_BEATS)
    assert everyone.message.startswith("no rank makes progress: rank 0 is in a pass")


def test_faults_of_an_environment() -> None:
    assert faults_of({}) == []
    text = '[{"rank": 1, "step": 3, "how": "raise", "attempt": 1}]'
    (found,) = faults_of({"SHARDWRIGHT_FAULTS": text})
    assert found == {"rank": 1, "step": 3, "how": "raise", "attempt": 1}
    with pytest.raises(InputError, match=r"SHARDWRIGHT_FAULTS: faults\.0\.how: got burn"):
        faults_of({"SHARDWRIGHT_FAULTS": '[{"rank": 1, "step": 3, "how": "burn"}]'})
    assert [attempt_of({}), attempt_of({"TORCHELASTIC_RESTART_COUNT": "2"})] == [0, 2]


def test_a_fault_strikes_at_its_rank_step_moment_and_attempt() -> None:
    fault = Fault(rank=1, step=3, how="raise", at="update", attempt=1)
    faults = FaultList(faults=(fault,))
    for moment in (
        (0, 3, "update", 1),
        (1, 2, "update", 1),
        (1, 3, "begin", 1),
        (1, 3, "update", 0),
    ):
        faults.inject(*moment)
    with pytest.raises(ValueError, match="asked for in step 3"):
        faults.inject(1, 3, "update", 1)
    with pytest.raises(InputError, match=r"fault\.step: got 0"):
        Fault(rank=0, step=0, how="kill")


class QuietWorker:
    """A rank that says nothing and has not ended."""

    def ending(self) -> None:
        """It lives."""


class QuietPool(WorkerPool):
    """A pool of ranks without processes."""

    def _start(self, rank: int, device: str) -> None:
        self._workers.append(cast("Any", QuietWorker()))


def test_a_pool_whose_job_fails_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(signals: object) -> None:
        raise RunError("rank 1 is lost")

    pool, kills = QuietPool(2), list[bool]()
    monkeypatch.setattr(pool, "_await_ready", lost)
    monkeypatch.setattr(pool, "kill", lambda: kills.append(True))
    with pytest.raises(RunError, match="rank 1 is lost"):
        pool.run("shardwright.executor.train.job:train", {})
    pool._folder.close()
    assert kills == [True]


def test_a_launcher_that_was_stopped_blames_no_rank_for_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(pool_module, "POLL_S", 0.0)
    pool = QuietPool(2, options=PoolOptions(silent_after_s=5.0, stalled_after_s=10.0))
    watch, begun_s = pool._watchdog, pool._now_s()
    watch.begin("running", "a job", now_s[0])

    def poll(after_s: float) -> None:
        now_s[0] += after_s
        pool._poll(None, None, None)

    for after_s in (1.0, 3600.0, 1.0, 60.0, 1.0):  # Ctrl-Z and fg, twice
        poll(after_s)
        assert (watch.silent(now_s[0]), watch.stalled(now_s[0])) == ([], False)
    assert pool._now_s() - begun_s == pytest.approx(3.0)  # nor does it count for deadlines
    poll(1.9)  # a look that came late is none
    assert watch.silent(now_s[0]) == []
    poll(0.2)
    assert watch.silent(now_s[0]) == [0, 1]
    for _ in range(5):
        poll(1.0)
    assert watch.stalled(now_s[0])
    pool._workers.clear()
    pool.kill()
