"""End a process with its parent, so that killed runs leave none."""

from __future__ import annotations

import os


def end_with_parent() -> None:
    """End with the parent, as ranks of a pool do."""
    from shardwright.executor.worker import end_with_parent

    end_with_parent(os.getppid())
