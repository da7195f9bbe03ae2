"""Put the evidence items, which are no package, on the path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Restore the environment: the evidence points user folders at its own state."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
