"""Drift of the machine's speed, by a fixed loop between measurements."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.executor.launch.pool import WorkerPool

JOB_PACKAGE, LOOP_JOB = "support", "support.reference_loop:gemm_seconds"


def loop_seconds(pool: WorkerPool) -> list[float]:
    """Seconds of the fixed loop on every rank."""
    return [float(seconds) for seconds in pool.run(LOOP_JOB, {})]


def drift(seconds: Sequence[Sequence[float]]) -> float:
    """Slowest over fastest loop less one, on the worst rank.

    Args:
        seconds: of every rank, each time that the loop was run.
    """
    return max(max(times) / min(times) - 1 for times in zip(*seconds, strict=True))
