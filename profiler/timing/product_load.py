"""Matrix products that keep a CUDA device busy during other work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from ...executor.host.transfers import finish

SIDE = 4096
LONGER = 3.0
"""Duration of the products over that of the timed work alone."""
MAX_MATMULS = 400
"""Most products queued at once: a device's queue holds about a thousand launches."""


class MatmulLoad:
    """bf16 products on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._left = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=device)
        self._out = torch.empty_like(self._left)
        finish(device)
        self.product_s = self.seconds(20) / 20

    def start(self, count: int) -> None:
        """Queue ``count`` products."""
        with torch.cuda.stream(self.stream):
            for _ in range(count):
                torch.mm(self._left, self._left, out=self._out)

    def seconds(self, count: int) -> float:
        """Seconds of ``count`` products alone, after a first one."""
        self.start(1)
        finish(self.device)
        start_s = time.perf_counter()
        self.start(count)
        finish(self.device)
        return time.perf_counter() - start_s

    def count_for(self, seconds: float) -> int:
        """Number of products that take about ``seconds``."""
        return max(1, min(MAX_MATMULS, math.ceil(seconds / self.product_s)))

    def overlapped_seconds(self, run: Callable[[], object]) -> float:
        """Seconds of work on the current stream while products run.

        A first run alone tells how many products that takes.
        """
        alone_s = timed_on_stream(run, self.device)
        self.start(self.count_for(LONGER * alone_s))
        seconds = timed_on_stream(run, self.device)
        finish(self.device)
        return seconds


def timed_on_stream(run: Callable[[], object], device: torch.device) -> float:
    """Seconds between two events of the current stream, around ``run``."""
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    begin.record(torch.cuda.current_stream(device))
    run()
    end.record(torch.cuda.current_stream(device))
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
