"""Pools of ranks for the whole run: starting ranks costs seconds, a case a fraction of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ranks.rank_pools import RankPool

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Everything here starts ranks, and stays in one process so that it shares them."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.distributed)
            item.add_marker(pytest.mark.xdist_group("ranks"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def one_rank() -> Iterator[RankPool]:
    with RankPool(1) as pool:
        yield pool


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[RankPool]:
    """Compilers are at work in some of their steps, in silence."""
    with RankPool(2, silent_after_s=60.0) as pool:
        yield pool


@pytest.fixture(scope="session")
def three_ranks() -> Iterator[RankPool]:
    with RankPool(3) as pool:
        yield pool


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[RankPool]:
    with RankPool(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def eight_ranks() -> Iterator[RankPool]:
    with RankPool(8) as pool:
        yield pool
