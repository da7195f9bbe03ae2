"""A process that ends with the one that started it, so that a killed run leaves none behind."""

from __future__ import annotations

import os


def end_with_parent() -> None:
    """As ranks of a pool do; nothing of theirs is loaded before it is asked for."""
    from shardwright.executor.worker import end_with_parent

    end_with_parent(os.getppid())
