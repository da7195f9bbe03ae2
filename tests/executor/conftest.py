"""One process that plays a rank of many: a process group that communicates with nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardwright.executor.train.dry_run import alone_in_world


@pytest.fixture
def fake_ranks() -> Callable[[int, int], object]:
    """``with fake_ranks(rank, ranks):`` this process is one rank of a world without others."""
    return alone_in_world
