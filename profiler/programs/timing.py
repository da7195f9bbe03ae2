"""Compile and time tensor programs on one core."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .workloads import tvm_module

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3"}
REPEATS, TRIES = 7, 3
AGREEMENT = 0.1
"""Part by which the second least repeat may exceed the least; else a program is timed again."""
LEAST_RUN_S = 1e-3
"""Least seconds of a repeat, so that the clock's grain does not count."""
MOST_RUN_S = 0.1
"""Programs slower than this are refused."""


OWN_SHARE = 0.9
"""Part of a repeat in which the core has to be the program's own."""


class Timed(NamedTuple):
    """Least of a program's repeats, their variance, and the second least over the least."""

    time_s: float
    variance_s2: float
    agreement: float


class Compiled:
    """A compiled ``PrimFunc`` with operands of its own."""

    def __init__(self, function: Any) -> None:
        runtime = tvm_module("runtime")
        self.device = runtime.device("cpu")
        target = tvm_module("target").Target(TARGET)
        self.module = tvm_module("driver").compile(function, target=target).jit()
        random = np.random.default_rng(0)
        self.operands = [
            runtime.tensor(random.random([int(n) for n in side.shape], np.float32), self.device)
            for side in function.params
        ]

    def repeats(self, number: int, repeat: int) -> list[float]:
        """Mean seconds of ``number`` runs, ``repeat`` times; infinite where others took the core.

        Without that, on a machine under load, every program longer than a time slice of the
        scheduler came out twenty times too slow.
        """
        evaluator = self.module.time_evaluator("main", self.device, number=number, repeat=1)

        def once() -> float:
            start_s = time.perf_counter(), time.thread_time()
            seconds = float(evaluator(*self.operands).results[0])
            wall_s, own_s = time.perf_counter() - start_s[0], time.thread_time() - start_s[1]
            return seconds if own_s >= OWN_SHARE * wall_s else math.inf

        return [once() for _ in range(repeat)]

    def run(self) -> None:
        """Run once."""
        self.module["main"](*self.operands)


def timed(program: Compiled) -> Timed | None:
    """Time a program; None if it takes longer than :data:`MOST_RUN_S` or was always interrupted."""
    first_s = min(program.repeats(1, TRIES))
    if first_s > MOST_RUN_S:
        return None
    number, repeats = max(1, round(LEAST_RUN_S / first_s)), REPEATS if first_s < 0.02 else 3
    seconds: list[float] = []
    for _ in range(TRIES):
        seconds += program.repeats(number, repeats)
        least, second = sorted(seconds)[:2]
        if second <= (1 + AGREEMENT) * least:
            break
    own = [x for x in seconds if math.isfinite(x)]
    return Timed(least, float(np.var(own)), second / least) if own else None


def timed_together(programs: Sequence[Compiled]) -> float:
    """Least seconds of programs run one after another."""
    seconds = []
    for _ in range(2 * REPEATS):
        start_s = time.perf_counter()
        for program in programs:
            program.run()
        seconds.append(time.perf_counter() - start_s)
    return min(seconds)
