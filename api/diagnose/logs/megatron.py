"""Read logs of Megatron-LM, and of frameworks that print as it does.

Lines: Megatron-LM megatron/training/training.py (training_log), utils.py (report_memory) and
arguments.py (_print_args) at core 0.14.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .run_log import RunLog, logged_steps
from .words import plain, scalar

STEP = re.compile(r"iteration\s+(\d+)/.*elapsed time per iteration \(ms\):\s*([\d.]+)")
BATCH = re.compile(r"global batch size:\s*(\d+)")
MEMORY = re.compile(r"memory \(MB\) \|.*?max allocated: ([\d.]+)(?:.*?max reserved: ([\d.]+))?")
ARGUMENT = re.compile(r"\s*([a-z]\w*) (\.*) (.*)")
FIRST, LAST = " arguments ---", "end of arguments"
MIB = 2**20
ENCODER = "encoder_num_layers"
"""A decoder's own layers under the name of an encoder's."""
SECOND_MOMENT = "exp_avg_sq_dtype"


def read(lines: Iterable[str]) -> RunLog:
    """The run of a log's lines; without steps where they are not Megatron-LM's."""
    seconds: dict[int, float] = {}
    batches: dict[int, int] = {}
    keys: dict[str, Any] = {}
    peak, kind, in_arguments = 0.0, "", False
    for line in map(plain, lines):
        if LAST in line:
            in_arguments = False
        elif in_arguments:
            if found := ARGUMENT.match(line):
                keys[found.group(1)] = scalar(found.group(3))
        elif FIRST in line:
            in_arguments = True
        elif found := STEP.search(line):
            step = int(found.group(1))
            seconds[step] = float(found.group(2)) / 1e3
            if batch := BATCH.search(line):
                batches[step] = int(batch.group(1))
        elif found := MEMORY.search(line):
            reserved = found.group(2)
            peak = max(peak, float(reserved or found.group(1)) * MIB)
            kind = "reserved" if reserved else "allocated"
    return RunLog(
        kind="megatron",
        unit="seconds",
        steps=logged_steps(_of_last_batch(seconds, batches)),
        keys=_known(keys),
        peak_bytes=peak or None,
        peak_of=kind,
    )


def _of_last_batch(seconds: dict[int, float], batches: dict[int, int]) -> dict[int, float]:
    """Steps of the last batch size: earlier ones of a ramp do other work."""
    if not batches:
        return seconds
    last = batches[max(batches)]
    return {step: value for step, value in seconds.items() if batches.get(step, last) == last}


def _known(keys: dict[str, Any]) -> dict[str, Any]:
    """Arguments without values that repeat others."""
    if keys.get(ENCODER) == keys.get("num_layers"):
        keys.pop(ENCODER, None)
    if keys.get(SECOND_MOMENT) == keys.get("exp_avg_dtype"):
        keys.pop(SECOND_MOMENT, None)
    return keys
