"""A broken rank ends the job within seconds, with its name in one line, and leaves nobody."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from generators.plan_cases import Case
from ranks.rank_pools import SUPPORT, pool_options

from shardwright.executor.launch.pool import TRAIN_JOB, WorkerPool, run_plan
from shardwright.spec.errors import RunError, ShardwrightError

LIMIT_S = 15.0
COLLECTIVE_TIMEOUT_S = 4.0


def is_alive(pid: int) -> bool:
    """Whether a process runs or is stopped; one that only waits to be reaped does not count."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def ready_pool(ranks: int = 2) -> Iterator[WorkerPool]:
    pool = WorkerPool(ranks, options=pool_options(COLLECTIVE_TIMEOUT_S))
    try:
        pool.run("ranks.rank_jobs:echo", 0)
        yield pool
    finally:
        pool.kill()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", r"^rank 1 was killed by SIGKILL in ranks.rank_jobs:leave"),
        ("exit", r"^rank 1 exited with code 7 in ranks.rank_jobs:leave"),
        ("raise", r"^rank 1 failed in ranks.rank_jobs:leave: ValueError: a deliberate mistake"),
        ("stop", r"^rank 1 is stopped: no heartbeat for"),
        ("sleep", r"^rank 0 waited in vain for other ranks .*; rank 1 is in ranks.rank_jobs:leave"),
    ],
)
def test_a_broken_rank_ends_the_job(how: str, says: str) -> None:
    with ready_pool() as pool:
        pids = pool.pids
        start_s = time.monotonic()
        with pytest.raises(RunError, match=says) as caught:
            pool.run("ranks.rank_jobs:leave", {"rank": 1, "how": how})
        assert time.monotonic() - start_s < LIMIT_S
        assert "\n" not in str(caught.value)
        assert gone(pids)
        with pytest.raises(RunError, match="have ended"):
            pool.run("ranks.rank_jobs:echo", 0)


def test_a_missing_collective_ends_the_job() -> None:
    with ready_pool() as pool:
        pids = pool.pids
        start_s = time.monotonic()
        with pytest.raises(RunError, match=r"^rank 0 waited in vain .*; rank 1 has finished"):
            pool.run("ranks.rank_jobs:skip", {"rank": 1, "how": ""})
        assert time.monotonic() - start_s < LIMIT_S
        assert gone(pids)


def test_a_rank_killed_in_the_middle_of_training() -> None:
    """While steps run, not at a place of our choosing."""
    plan = Case(name="pipeline", ranks=2, stages=2, micro_batch=2).plan()
    payload = {
        "plan": plan.to_document(),
        "steps": 100_000,
        "random_tokens": True,
        "follow_bytes": False,
    }
    with ready_pool() as pool:
        pids = pool.pids

        def kill_at_step_5(rank: int, event: dict[str, object]) -> None:
            if event["step"] == 5:
                os.kill(pids[1], signal.SIGKILL)

        start_s = time.monotonic()
        with pytest.raises(RunError, match=r"^rank 1 was killed by SIGKILL in "):
            pool.run(TRAIN_JOB, payload, on_event=kill_at_step_5)
        assert time.monotonic() - start_s < LIMIT_S
        assert gone(pids)


@pytest.mark.parametrize(
    ("stages", "how", "says"),
    [
        (1, "hang", r"^rank 1 hangs in .*, and the others wait for it: rank 0 is in "),
        (2, "hang", r"^rank 1 hangs in .*, and the others wait for it: rank 0 is in "),
        (2, "stop", r"^rank 1 is stopped: no heartbeat for"),
    ],
)
def test_a_rank_that_is_missing_in_training_is_named(stages: int, how: str, says: str) -> None:
    """Under the limits that a person's runs have."""
    plan = Case(name="two", ranks=2, stages=stages).plan()
    payload = {
        "plan": plan.to_document(),
        "steps": 100_000,
        "random_tokens": True,
        "follow_bytes": False,
        "faults": [{"rank": 1, "step": 4, "how": how}],
    }
    last_s: list[float] = []
    with pytest.raises(RunError, match=says):
        run_plan(plan, payload, lambda rank, event: last_s.append(time.monotonic()))
    assert len(last_s) == 3
    assert time.monotonic() - last_s[-1] < LIMIT_S


def test_a_job_that_takes_too_long() -> None:
    with ready_pool(1) as pool, pytest.raises(RunError, match=r"took more than 1 s; rank 0 is in"):
        pool.run("ranks.rank_jobs:leave", {"rank": 0, "how": "sleep"}, timeout_s=1)


def test_only_functions_of_allowed_packages_are_jobs() -> None:
    with ready_pool(1) as pool, pytest.raises(ShardwrightError, match="job: got os:getpid") as e:
        pool.run("os:getpid", None)
    assert e.value.exit_code == 2


def test_a_mistake_that_only_a_rank_can_find_keeps_its_exit_code() -> None:
    plan = Case(name="small vocabulary", ranks=1).plan()
    with pytest.raises(ShardwrightError, match=r"model\.vocab: got 64; allowed: at least 257") as e:
        run_plan(plan, {"steps": 1})
    assert e.value.exit_code == 2


def test_output_of_ranks_does_not_disturb_the_channel() -> None:
    with ready_pool() as pool:
        assert pool.run("ranks.rank_jobs:chatter", 300_000) == [600_000, 600_000]
        seen: list[tuple[int, object]] = []
        found = pool.run(
            "ranks.rank_jobs:echo", [1.5, "é"], on_event=lambda r, e: seen.append((r, e))
        )
    assert found == [[0, 2, [1.5, "é"]], [1, 2, [1.5, "é"]]]
    event = {"event": "seen", "payload": [1.5, "é"]}
    assert sorted(seen, key=lambda item: item[0]) == [(0, event), (1, event)]


PARENT = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from ranks.rank_pools import pool_options
from shardwright.executor.launch.pool import WorkerPool

def work():
    pool = WorkerPool(2, options=pool_options())
    pool.run("ranks.rank_jobs:echo", 0)
    print(*pool.pids, flush=True)
    pool.run("ranks.rank_jobs:leave", {"rank": 0, "how": sys.argv[1]})

if sys.argv[2] == "main":
    work()
else:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


def started_parent(how: str, where: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher with two ranks at work, and the ranks' process numbers."""
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, how, where],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, [int(word) for word in parent.stdout.readline().split()]


@pytest.mark.parametrize(
    ("how", "where"), [("stop", "main"), ("sleep", "main"), ("sleep", "thread")]
)
def test_ranks_end_with_a_launcher_that_is_killed(how: str, where: str) -> None:
    parent, pids = started_parent(how, where)
    with parent:
        assert len(pids) == 2
        time.sleep(0.5)
        parent.kill()
        assert gone(pids)


def test_an_interrupt_ends_the_ranks_and_is_passed_on() -> None:
    parent, pids = started_parent("sleep", "main")
    time.sleep(0.5)
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=10)
    assert re.search(r"^KeyboardInterrupt", errors, re.MULTILINE)
    assert gone(pids)
