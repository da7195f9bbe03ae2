"""What ``make unit`` runs: something of every subpackage, and nothing that is named in vain."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from runner.quick import FILES, is_slow

TESTS = Path(__file__).resolve().parents[1]
SUBPACKAGES = ("api", "costmodel", "datasets", "executor", "kernels", "planner", "profiler", "spec")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_left_out_exists(name: str) -> None:
    assert (TESTS / name).is_file()


def test_every_subpackage_is_touched() -> None:
    quick = Counter(
        path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if not is_slow(path)
    )
    assert {name: quick[name] for name in SUBPACKAGES if quick[name] < 5} == {}
    assert quick["distributed"] == 0
    assert is_slow(TESTS / "api" / "service" / "test_service.py")
