"""``plan execute`` in a process and folder of its own.

Only a service started with ``--allow-execute`` has workers that take runs.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...compute.lending import lent_document
from ...compute.pool import child_environment
from ...lifeline import kill_group
from ...problems import encode, problem
from .run_child import END_S, LENT_FILE
from .search_child import ChildLostError

MODULE = "shardwright.api.server.jobs.workers.run_child"
POLL_S = 0.1
MAX_BYTES = 2**24
EXIT_REASONS = {
    2: "the plan is for other devices than this machine has, or asks for what cannot run here",
    3: "the plan does not fit this machine",
}


def execute_plan_file(
    plan: Any,
    steps: int,
    limit_s: float,
    is_cancelled: Callable[[], bool],
    calibration: str | None = None,
) -> tuple[int, bytes, bool]:
    """Run a plan.

    Args:
        plan: its document.
        steps: the step to reach.
        limit_s: seconds after which the run is ended.
        is_cancelled: polled for a cancellation.
        calibration: the JSON of the one that the plan's report names, if its owner stored it.

    Returns:
        Status and JSON as ``plan execute --json`` writes it, and True if canceled.

    Raises:
        ChildLostError: it was canceled, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="shardwright-run-") as name:
        folder = Path(name)
        prepare(folder, plan, calibration)
        command = ["execute", "plan.json", "--steps", str(steps), "--json", "out.json"]
        with subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it names what the plan holds
            env=child_environment(),
            cwd=folder,
            start_new_session=True,
        ) as process:
            code = _wait_for_exit(process, time.monotonic() + limit_s, is_cancelled)
        if code != 0:
            status = 422 if code in EXIT_REASONS else 500
            return status, encode(problem(status, EXIT_REASONS.get(code, "the run failed"))), False
        answer = (folder / "out.json").read_bytes()
        if len(answer) > MAX_BYTES:
            return 500, encode(problem(500, "the run's report is too large")), False
        return 200, answer, False


def prepare(folder: Path, plan: Any, calibration: str | None) -> None:
    """Write what a run reads."""
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / LENT_FILE).write_text(json.dumps(lent_document(calibration)))


def _wait_for_exit(
    process: subprocess.Popen[bytes], ends_s: float, is_cancelled: Callable[[], bool]
) -> int:
    """Wait for the exit code, first interrupting, then killing overdue runs."""
    while True:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            cancelled = is_cancelled()
        if not cancelled and time.monotonic() < ends_s:
            continue
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
        raise ChildLostError("cancelled" if cancelled else "late")
