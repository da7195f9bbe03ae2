"""One process that plays a rank of many: a process group that communicates with nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch.distributed as dist


@contextmanager
def _fake_ranks(rank: int, ranks: int) -> Iterator[None]:
    # registers the backend "fake"
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture
def fake_ranks() -> Callable[[int, int], object]:
    """``with fake_ranks(rank, ranks):`` this process is one rank of a world without others."""
    return _fake_ranks
