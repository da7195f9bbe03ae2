"""Child processes, alone or as groups, that end with their parent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable


def when_input_closes(then: Callable[[], object]) -> None:
    """Call ``then`` in a thread once standard input is closed.

    It closes when the parent is gone, even killed, and even amid a search.
    """
    watch = select.poll()
    watch.register(sys.stdin.fileno(), 0)  # no event but the other end's closing

    def wait() -> None:
        watch.poll()
        then()

    threading.Thread(target=wait, daemon=True).start()


def kill_group(process_id: int) -> None:
    """Kill a process group and its leader, if any are left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process_id, signal.SIGKILL)
