"""Jobs whose losses over a split vocabulary take small chunks, as of huge logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ranks import rank_jobs

from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.train.job import train
from shardwright.spec.report import work_items

ROWS = 48
"""Tokens of a chunk; the last one of a micro-batch is smaller."""


@contextmanager
def small_chunks() -> Iterator[None]:
    """Every split vocabulary's loss goes in chunks of ``ROWS`` tokens."""
    before = {
        name: getattr(work_items, name)
        for name in ("LARGEST_SPLIT_LOGITS", "LARGEST_LOGITS", "CHUNK_MULTIPLE")
    }
    for name, value in zip(before, (0, 0, ROWS), strict=True):
        setattr(work_items, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(work_items, name, value)


def record(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.record`, in small chunks."""
    with small_chunks():
        return rank_jobs.record(context, payload)


def live_bytes(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.live_bytes`, in small chunks."""
    with small_chunks():
        return rank_jobs.live_bytes(context, payload)


def train_chunked(context: RankContext, payload: dict[str, Any]) -> Any:
    """A run in small chunks."""
    with small_chunks():
        return train(context, payload)
