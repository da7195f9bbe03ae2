"""A rank that never comes ends the job with its name; one that is only slow to start does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from generators.plan_cases import Case
from ranks.rank_pools import pool_options

from shardwright.executor.launch.fault_injection import VARIABLE
from shardwright.executor.launch.pool import PoolOptions, WorkerPool
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import RunError

PATIENCE_S = 3.0
PLAN = Case(name="two", ranks=2).plan()


def options(how: str | None = None) -> PoolOptions:
    """Little patience at the start; rank 1 breaks as asked before it joins."""
    usual = pool_options()
    faults = [] if how is None else [{"rank": 1, "step": 1, "at": "join", "how": how}]
    environment = {**usual.environment, VARIABLE: json.dumps(faults)}
    return replace(usual, missing_after_s=PATIENCE_S, environment=environment)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("hang", r"^rank 1 did not join the others: it does nothing, in starting, for \d+ s$"),
        ("stop", r"^rank 1 did not join the others: it is stopped, in starting, for \d+ s$"),
        ("exit", r"^rank 1 exited with code 7 in starting"),
        ("raise", r"^rank 1 failed in starting: ValueError: a fault that was asked for"),
    ],
)
def test_a_rank_that_never_joins_is_named(how: str, says: str) -> None:
    with WorkerPool(2, options=options(how)) as pool, pytest.raises(RunError, match=says):
        pool.run("ranks.rank_jobs:echo", 0)


def test_a_rank_that_stops_while_it_loads_is_named() -> None:
    pool = WorkerPool(2, options=options())
    os.kill(pool.pids[1], signal.SIGSTOP)
    with pool, pytest.raises(RunError, match=r"^rank 1 did not join the others: it is stopped, in"):
        pool.run("ranks.rank_jobs:echo", 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_nobody_started_is_named(tmp_path: Path, rank: int) -> None:
    """Without a launcher that looks after the ranks: this one is alone."""
    (tmp_path / "plan.json").write_text(canonical_json(PLAN))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shardwright.executor.worker", "plan.json", "--join", "1"],
        cwd=tmp_path,
        env={**os.environ, **meeting, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    line = done.stderr.splitlines()[-1]
    if rank == 0:
        assert line.startswith("rank 0: rank 1 of 2 did not join the others within ")
        assert line.endswith(" s after the one before (--join waits longer)")
    else:
        assert line.startswith("rank 1: rank 0 did not join the others within ")
        assert f"nobody answers at 127.0.0.1:{port} (MASTER_ADDR, MASTER_PORT; " in line
