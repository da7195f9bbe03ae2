"""In which order tests run, and which of them stay together in one process."""

from __future__ import annotations

from collections import Counter

import pytest

SERVICE = "service"
TOGETHER = {
    "tests/api/service/test_service": SERVICE,
    "tests/api/jobs/test_service": SERVICE,
    "tests/api/python/test_service_client": SERVICE,
    "tests/api/browser/test_browser_odd": SERVICE,
    "tests/api/mistakes/test_mistakes_elsewhere": SERVICE,
    "tests/distributed/": "ranks",
}
"""Starts of file names whose tests share something expensive, and what that is."""

YOUNG = "tests/executor/"
"""Tests that run steps, which look for garbage again and again: quick in a young process."""


def together(nodeid: str) -> str:
    """What a test shares with those of other files; its own file where that is nothing."""
    file = nodeid.partition("::")[0]
    return next((what for start, what in TOGETHER.items() if file.startswith(start)), file)


def put_in_order(items: list[pytest.Item]) -> None:
    """The service's tests, the longest row, first; then, in another process, the young; then many
    of a file before few, so that processes end together."""
    sizes = Counter(together(item.nodeid) for item in items)

    def turn(item: pytest.Item) -> tuple[int, int]:
        place = together(item.nodeid)
        if place == SERVICE:
            return 0, 0
        return 1 if place.startswith(YOUNG) else 2, -sizes[place]

    items.sort(key=turn)
