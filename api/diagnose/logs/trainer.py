"""Read logs of transformers' Trainer.

Lines: its progress bar (tqdm), the arguments as TrainingArguments prints itself, and what
Trainer.train returns (transformers/trainer.py, trainer_utils.py: speed_metrics).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .run_log import LoggedStep, RunLog
from .words import plain, scalar

BAR = re.compile(r"(\d+)/(\d+) \[(?:(\d+):)?(\d+):(\d+)<")
TOTAL = re.compile(r"Total optimization steps\s*=\s*([\d,]+)")
RATE = re.compile(r"['\"]?train_steps_per_second['\"]?\s*[:=]\s*'?([\d.]+)")
FIRST, ARGUMENT, LAST = "TrainingArguments(", re.compile(r"\s*(\w+)=(.*?),?\s*"), ")"
LEAST_S = 20
"""Seconds between two readings of a bar, which shows whole seconds."""


def read(lines: Iterable[str]) -> RunLog:
    """The run of a log's lines; without steps where they are not Trainer's."""
    bars: dict[int, dict[int, float]] = {}
    seen: Counter[int] = Counter()
    total: int | None = None
    rate, keys, in_arguments = 0.0, dict[str, Any](), False
    for line in map(plain, lines):
        if in_arguments:
            in_arguments = line.strip() != LAST
            if found := ARGUMENT.fullmatch(line):
                keys[found.group(1)] = scalar(found.group(2))
        elif FIRST in line:
            in_arguments = True
        if found := TOTAL.search(line):
            total = int(found.group(1).replace(",", ""))
        if found := RATE.search(line):
            rate = float(found.group(1))
        for step, of, hours, minutes, seconds in BAR.findall(line):
            elapsed = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
            bars.setdefault(int(of), {}).setdefault(int(step), elapsed)
            seen[int(of)] += 1
    length = total if total in bars else max(seen, key=lambda of: seen[of], default=None)
    steps = _between(bars[length]) if length is not None and (total or keys or rate) else ()
    if not steps and rate > 0:
        steps = (LoggedStep(step=total or 1, value=1 / rate, count=total or 1),)
    return RunLog(kind="trainer", unit="seconds", steps=steps, keys=keys, form="json")


def _between(elapsed: Mapping[int, float]) -> tuple[LoggedStep, ...]:
    """Mean seconds of the steps between readings."""
    made: list[LoggedStep] = []
    first: tuple[int, float] | None = None
    for step, seconds in sorted(elapsed.items()):
        if first is None:
            first = (step, seconds)
        elif seconds - first[1] >= LEAST_S:
            count = step - first[0]
            value = (seconds - first[1]) / count
            made.append(LoggedStep(step=step, value=value, count=count))
            first = (step, seconds)
    return tuple(made)
