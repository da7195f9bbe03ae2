"""``make gpu-report``: measure kernels, steps and predictions on this GPU.

    python benchmarks/gpu/report.py                     every stage that is not finished
    … --stage kernels profile                           these stages
    … --out FOLDER                                      where rows, tables and JSON are kept
    … --again                                           from the start
    … --reduced                                         on the CPU, tiny, judging nothing
    … --ship                                            the finished one into the repository

It needs no network and none of the project's environments: torch 2.11 or newer, numpy and
Python 3.11 or newer; what else is missing comes from the wheels of ``make gpu-wheels``. Rows are
kept as they are measured; a run that was stopped goes on where it was. This file only prepares
the environment of the process that does the work, and loads nothing but the standard library.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))
DEFAULT_OUT = BENCHMARKS / ".state" / "gpu"


def main() -> int:
    """Prepare, and exec the measuring process; return 2 if something is missing."""
    from gpu.bootstrap import MissingError, environment

    options = _options()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    try:
        prepared = environment(out)
    except MissingError as error:
        print(f"gpu-report: {error}", file=sys.stderr)
        return 2
    module = "gpu.ship" if options.ship else "gpu.command"
    command = [sys.executable, "-m", module, "--out", str(out)]
    command += ["--stage", *options.stage] if options.stage else []
    command += [f"--{name}" for name in ("again", "reduced") if getattr(options, name)]
    os.execve(sys.executable, command, {**os.environ, **prepared})  # noqa: S606 - a list, no shell


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="report.py", description="Measure on this GPU.")
    parser.add_argument("--stage", nargs="+", metavar="NAME", help="these stages only")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the results")
    parser.add_argument("--again", action="store_true", help="from the start")
    parser.add_argument("--reduced", action="store_true", help="on the CPU, tiny, nothing judged")
    parser.add_argument("--ship", action="store_true", help="keep the finished report and profile")
    options = parser.parse_args()
    if options.ship and (options.stage or options.again or options.reduced):
        parser.error("--ship measures nothing: give it with --out alone")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
