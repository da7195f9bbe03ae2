"""Order of tests, and those that share a process."""

from __future__ import annotations

from collections import Counter

import pytest

SERVICE = "service"
TOGETHER = {
    "tests/api/service/test_body_faults": SERVICE,
    "tests/api/service/test_service": SERVICE,
    "tests/api/jobs/test_service": SERVICE,
    "tests/api/python/test_service_client": SERVICE,
    "tests/api/python/test_service_files": SERVICE,
    "tests/api/browser/test_browser_docs": SERVICE,
    "tests/api/browser/test_browser_odd": SERVICE,
    "tests/api/browser/test_browser_questions": SERVICE,
    "tests/api/mistakes/test_mistakes_elsewhere": SERVICE,
    "tests/distributed/": "ranks",
}
"""Starts of file names whose tests share an expensive resource, and its name."""

YOUNG = "tests/executor/"
"""Tests that run steps, which look for garbage again and again: quick in a young process."""


def together(nodeid: str) -> str:
    """The resource a test shares with other files, or its own file."""
    file = nodeid.partition("::")[0]
    return next((what for start, what in TOGETHER.items() if file.startswith(start)), file)


def put_in_order(items: list[pytest.Item]) -> None:
    """Sort tests: the service's, then young ones, then files by falling size.

    So processes end together; the service's tests are the longest row.
    """
    sizes = Counter(together(item.nodeid) for item in items)

    def turn(item: pytest.Item) -> tuple[int, int]:
        shared = together(item.nodeid)
        if shared == SERVICE:
            return 0, 0
        return 1 if shared.startswith(YOUNG) else 2, -sizes[shared]

    items.sort(key=turn)
