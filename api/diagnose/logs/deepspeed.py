"""Read logs of DeepSpeed.

Lines: deepspeed/utils/timer.py (ThroughputTimer.stop: samples a second of all devices) and
runtime/config.py (print_user_config).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .run_log import RunLog, logged_steps
from .words import DocumentLines, flat, plain

STEP = re.compile(
    r"(?:global_step=|\d+/)(\d+), RunningAvgSamplesPerSec=[\d.]+, CurrSamplesPerSec=([\d.]+)"
)
MEMORY = re.compile(r"MaxMemAllocated=([\d.]+)GB")
CONFIGURATION = "json = "
GIB = 2**30


def read(lines: Iterable[str]) -> RunLog:
    """The run of a log's lines; without steps where they are not DeepSpeed's."""
    rates: dict[int, float] = {}
    document = DocumentLines(CONFIGURATION)
    peak = 0.0
    for line in map(plain, lines):
        document.add(line)
        if found := STEP.search(line):
            rates[int(found.group(1))] = float(found.group(2))
            if memory := MEMORY.search(line):
                peak = max(peak, float(memory.group(1)) * GIB)
    return RunLog(
        kind="deepspeed",
        unit="samples_per_s",
        steps=logged_steps({step: rate for step, rate in rates.items() if rate > 0}),
        keys=dict(flat(document.found)),
        form="json",
        peak_bytes=peak or None,
        peak_of="allocated",
    )
