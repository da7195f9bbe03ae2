"""Ranks that outlive a failing test: a pool that is started again when a job broke it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from shardwright.executor.launch.pool import OnEvent, PoolOptions, WorkerPool

SUPPORT = Path(__file__).resolve().parents[1]
JOB_PACKAGES = (
    "shardwright",
    "ranks",
    "toys",
)


def pool_options(collective_timeout_s: float = 60.0, silent_after_s: float = 5.0) -> PoolOptions:
    """Limits for tests; workers find the tests' jobs, and leave the tests' folders alone."""
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    return PoolOptions(
        collective_timeout_s=collective_timeout_s,
        silent_after_s=silent_after_s,
        job_packages=JOB_PACKAGES,
        environment={"PYTHONPATH": os.pathsep.join(p for p in paths if p)},
    )


class RankPool:
    """``ranks`` workers, made on first use and made again after a job that ended them."""

    def __init__(self, ranks: int, silent_after_s: float = 5.0) -> None:
        self.ranks = ranks
        self.silent_after_s = silent_after_s
        self._pool: WorkerPool | None = None

    def run(self, job: str, payload: Any, on_event: OnEvent | None = None) -> list[Any]:
        """Every rank's result; see :meth:`WorkerPool.run`."""
        if self._pool is None:
            self._pool = WorkerPool(
                self.ranks, options=pool_options(silent_after_s=self.silent_after_s)
            )
        try:
            return self._pool.run(job, payload, on_event=on_event)
        except BaseException:
            self._pool = None
            raise

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()
