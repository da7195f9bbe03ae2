"""Damaged files of every kind: refused in one line, or usable."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.shapes import EVERYTHING, Evidence, Item, judged, reported
from harness.work import Work
from runner import fuzz_files

from shardwright.executor.host.process_memory import peak_resident_bytes

FILES, TOGETHER = 100_000, 4_000
LONGEST_S, MOST_BYTES = 1.0, 256 * 2**20


def run(work: Work) -> Evidence:
    """Read them, in processes of their own."""
    firsts = [str(first) for first in range(0, work.sized(FILES, TOGETHER), TOGETHER)]
    pieces = work.pieces(firsts, _piece)
    faults = [piece["fault"] for piece in pieces if piece["fault"]]
    verdicts = sum((Counter(piece["verdicts"]) for piece in pieces), Counter[str]())
    slowest_s = max(piece["slowest_s"] for piece in pieces)
    most = max(piece["peak_bytes"] for piece in pieces)
    rows = [
        judged(
            "files that ended otherwise than in one line of ours",
            f"{len(faults)} of {sum(verdicts.values()):,}" + (f" ({faults[0]})" if faults else ""),
            f"0 of {FILES:,}",
            not faults,
            faults=len(faults),
        ),
        judged("the slowest file", f"{slowest_s:.3f} s", f"≤ {LONGEST_S:g} s",
               slowest_s <= LONGEST_S, seconds=slowest_s),
        judged("memory of a process that read 4,000 of them", f"{most / 2**20:.0f} MiB",
               "≤ 256 MiB", most <= MOST_BYTES, bytes=most),
    ]  # fmt: skip
    rows += [reported(name, f"{count:,}", count=count) for name, count in sorted(verdicts.items())]
    return Evidence(rows=rows)


def _piece(first: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, first], capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _main(first: int) -> None:
    fault, verdicts, slowest_s = None, Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        try:
            verdicts, slowest_s = fuzz_files.run_files(TOGETHER, Path(folder), first)
        except AssertionError as error:
            fault = str(error)[:300]
    peak = peak_resident_bytes()
    result = {"fault": fault, "verdicts": verdicts, "slowest_s": slowest_s, "peak_bytes": peak}
    print(json.dumps(result))


ITEM = Item(
    name="damaged_files",
    shows="A damaged file of any kind is refused in one line, or usable after all.",
    target="no other end in 100,000 files; each within 1 s and 256 MiB.",
    run=run,
    reads=(*EVERYTHING, "tests/support/runner/fuzz_files.py", "tests/support/generators/samples.py",
           "tests/support/generators/random_plans.py", "tests/support/generators/random_spaces.py",
           "tests/support/oracles/brute_force.py"),
    timed=True,
)  # fmt: skip

if __name__ == "__main__":
    _main(int(sys.argv[1]))
