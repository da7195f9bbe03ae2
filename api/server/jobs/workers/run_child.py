"""``plan execute`` that ends with its worker.

Its standard input stays open as long as the worker lives. When it closes, the run is interrupted as
by Ctrl-C, which ends its ranks, and the process is killed a few seconds later.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from ...lifeline import when_input_closes

END_S = 10.0


def main() -> None:
    """Run the command line with this process's arguments."""
    when_input_closes(_end)
    from ....cli.main import run

    raise SystemExit(run(sys.argv[1:]))


def _end() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(END_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
