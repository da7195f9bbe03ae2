"""``plan execute`` that ends with its worker.

Its standard input stays open as long as the worker lives. When it closes, the run is interrupted as
by Ctrl-C, which ends its ranks, and the process is killed a few seconds later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from ...lifeline import when_input_closes

END_S = 10.0
LENT_FILE = "lent.json"
"""Beside the plan: the calibration lent to the run."""


def main() -> None:
    """Run the command line with this process's arguments."""
    when_input_closes(_end)
    from ....cli.main import run
    from ....problem.stored_calibrations import lending
    from ...compute.lending import lent_from

    with lending(lent_from(json.loads(Path(LENT_FILE).read_text()))):
        code = run(sys.argv[1:])
    raise SystemExit(code)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(END_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
