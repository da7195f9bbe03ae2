"""Read logs of torchtitan.

Lines: torchtitan/components/metrics.py (MetricsProcessor.log: tokens a second of one device, since
the line before) and config/manager.py, which prints the configuration where it is asked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .run_log import RunLog, logged_steps
from .words import DocumentLines, flat, plain

STEP = re.compile(r"step:\s*(\d+)\s.*?\btps:\s*([\d,]+)")
MEMORY = re.compile(r"memory:\s*([\d.]+)GiB")
MARKS = ("Running with configs:", "Running with args:")
GIB = 2**30


def read(lines: Iterable[str]) -> RunLog:
    """The run of a log's lines; without steps where they are not torchtitan's."""
    rates: dict[int, list[float]] = {}
    documents = [DocumentLines(mark) for mark in MARKS]
    peak = 0.0
    for line in map(plain, lines):
        for document in documents:
            document.add(line)
        if found := STEP.search(line):
            rate = float(found.group(2).replace(",", ""))
            rates.setdefault(int(found.group(1)), []).append(rate)
            if memory := MEMORY.search(line):
                peak = max(peak, float(memory.group(1)) * GIB)
    means = {step: sum(found) / len(found) for step, found in rates.items()}
    found_keys = next((document.found for document in documents if document.found), {})
    return RunLog(
        kind="torchtitan",
        unit="tokens_per_s_per_device",
        steps=logged_steps({step: rate for step, rate in means.items() if rate > 0}),
        keys=dict(flat(found_keys)),
        form="toml",
        peak_bytes=peak or None,
        peak_of="reserved",
    )
