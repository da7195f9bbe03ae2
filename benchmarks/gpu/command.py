"""Run the stages, each in its own process, and write the report.

    python -m gpu.command --out FOLDER [--stage NAME…] [--again] [--reduced]

``report.py`` starts this with the environment that it needs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from gpu.child import SPOILED, WHOLE, rows_of
from gpu.machine_facts import facts, identity
from gpu.report_file import document, write
from gpu.stage import Stage, stages
from gpu.state import Result

TOTAL_S = 25 * 60.0
STAGE_LIMIT_S = 10 * 60.0
GRACE_S = 15.0
"""Past its budget, before the process of a stage is ended: the row in hand may be finished."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; return 2 if nothing can be measured, else 0."""
    options = _options(arguments)
    every = stages()
    names = [stage.name for stage in every]
    unknown = [name for name in options.stage or [] if name not in names]
    if unknown:
        print(f"gpu-report: no stage {unknown[0]}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    if not options.reduced and not torch.cuda.is_available():
        where = f"for torch {torch.__version__} of {sys.executable}"
        print(f"gpu-report: no CUDA device {where}; --reduced runs on a core", file=sys.stderr)
        return 2
    about = facts(torch.device("cpu") if options.reduced else torch.device("cuda", 0))
    mark = identity(about, options.reduced)
    chosen = [stage for stage in every if stage.name in (options.stage or names)]
    if options.again:
        for stage in chosen:
            rows_of(options.out, stage.name, mark).forget()
    start_s = time.monotonic()
    # Tiny rows spoil nothing, and a process costs seconds; on a device each stage has its own.
    groups = [chosen] if options.reduced else [[stage] for stage in chosen]
    try:
        for together in groups:
            _measure(together, options.out, mark, options.reduced, start_s + TOTAL_S)
    except KeyboardInterrupt:
        print("gpu-report: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    report = document(every, options.out, mark, about, options.reduced)
    report["seconds"] = round(time.monotonic() - start_s, 1)
    page = write(report, options.out)
    print(page)
    print(f"written: {options.out / 'report.md'}, {options.out / 'report.json'}")
    return 0


def _measure(together: list[Stage], out: Path, mark: str, reduced: bool, end_s: float) -> None:
    """Run the process of these stages until all had their turn."""
    run = uuid.uuid4().hex[:12]
    budget_s = sum(min(STAGE_LIMIT_S, stage.seconds(reduced)) for stage in together)
    stop_s = min(end_s, time.monotonic() + budget_s)
    left = [stage.name for stage in together]
    while left and time.monotonic() < stop_s:
        status = _run(left, out, run, reduced, stop_s - time.monotonic())
        if status == 0:
            return
        left = _after(left, out, mark, run, status)


def _run(names: list[str], out: Path, run: str, reduced: bool, limit_s: float) -> int | None:
    """Exit status of the process; None if it had to be killed."""
    command = [sys.executable, "-m", "gpu.child", *names, "--out", str(out), "--run", run]
    command += ["--limit", str(limit_s)] + (["--reduced"] if reduced else [])
    process = subprocess.Popen(command, process_group=0)
    try:
        return process.wait(limit_s + GRACE_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):  # and whatever it started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _after(names: list[str], out: Path, mark: str, run: str, status: int | None) -> list[str]:
    """Note the row that ended the process; return the unfinished stages."""
    if status == SPOILED:  # the row was noted
        return names
    why = "ran past the budget" if status is None else f"its process ended with status {status}"
    for number, name in enumerate(names):
        rows = rows_of(out, name, mark)
        if (key := rows.unfinished()) is not None:
            rows.keep(Result(key, "failed", why, 0.0, {}, run))
            return names[number:]
    rows_of(out, names[0], mark).keep(Result(WHOLE, "failed", why, 0.0, {}, run))
    return names[1:]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpu.command")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", nargs="+")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--reduced", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
