"""Schedules that split the backward into input and weight gradients.

Zero bubble: ZB-H1 of Qi et al., "Zero bubble pipeline parallelism" (2024, section 2.2): the
order of 1F1B, in which stage s delays weight gradients by s micro-batches. Every stage holds
p micro-batches at most, as the first one does in 1F1B.

ZBV: the V-ZB schedule of Qi et al., "Pipeline parallelism with controllable memory" (2024,
section 4): two chunks a stage in a V, so that first and last layers meet on stage 0 and every
stage holds the same activations.

DualPipe: the overlapped pairs of DeepSeek-V3 (2024, section 3.2.1) in the V that DeepSeek
published as DualPipeV. DualPipe on P devices is two mirrored halves that compute the same on
different micro-batches with two copies of all parameters; here one half of p = P/2 stages
stands for both, each layer is held once, and the other half is data parallelism.
"""

from __future__ import annotations

from collections import deque

from .passes import BackwardPart, Pass


def zero_bubble(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """ZB-H1 on ``stage``: 1F1B whose weight gradients come ``stage`` micro-batches late."""
    order = _Order()
    for _ in range(min(stages - stage - 1, micro_batches)):
        order.forward(0)
    for number in range(micro_batches):
        if number + stages - stage - 1 < micro_batches:
            order.forward(0)
        order.backward(0, "input")
        if number >= stage:
            order.weights()
    order.finish()
    return tuple(order.passes)


def zbv(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """V-ZB on ``stage``: chunk 0 going down the V, 1 coming up.

    The pattern needs 2·p micro-batches; a shorter step takes the passes of its micro-batches
    from it, which keeps every dependency.
    """
    count, remaining = max(micro_batches, 2 * stages), stages - stage
    order = _Order(one_queue=False)
    for _ in range(2 * remaining - 1):
        order.forward(0)
    for _ in range(stage):
        order.forward(1)
        order.forward(0)
    for _ in range(remaining):
        order.forward(1)
        order.both_parts(1)
    for number in range(count - stages):
        if number < count - stages - remaining + 1:
            order.forward(0)
        order.both_parts(0)
        order.forward(1)
        order.both_parts(1)
    for _ in range(stage):
        order.backward(0, "input")
        order.backward(1, "input")
    for _ in range(remaining):
        order.both_parts(0)
    order.finish()
    return tuple(pass_ for pass_ in order.passes if pass_.micro_batch < micro_batches)


def dualpipe(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """DualPipe in its V form on ``stage``; ``micro_batches`` are at least 2·p."""
    later = stages - stage - 1
    order = _Order()
    for _ in range(2 * later):
        order.forward(0)
    for _ in range(stage + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(later):
        order.both_parts(1)
        order.forward(1)
    for number in range(micro_batches - 2 * stages + stage + 1):
        order.forward(
            0, overlaps=bool(number or later)
        )  # the turn of the V waits for itself at first
        order.backward(1)
        order.forward(1, overlaps=True)
        order.backward(0)
    for _ in range(later):
        order.backward(1)
        order.forward(1, overlaps=True)
        order.backward(0)
    _drain(order, stage)
    for _ in range(later):
        order.weights()
        order.backward(0, "input")
    order.finish()
    return tuple(order.passes)


def _drain(order: _Order, stage: int) -> None:
    """Alternate both chunks' last backwards; the second half delays weight gradients."""
    backwards = [chunk for _ in range(stage + 1) for chunk in (1, 0)]
    for number, chunk in enumerate(backwards):
        order.backward(chunk, "input" if number > stage else "whole")


class _Order:
    """Order of a stage's passes under construction.

    Micro-batches of a kind in order. ``one_queue``: both chunks share a queue of weight gradients.
    """

    def __init__(self, one_queue: bool = True) -> None:
        self.passes: list[Pass] = []
        self._forwards, self._backwards = [0, 0], [0, 0]
        queue: deque[tuple[int, int]] = deque()
        self._pending = [queue, queue if one_queue else deque()]

    def forward(self, chunk: int, overlaps: bool = False) -> None:
        """Append a chunk's next forward."""
        number = self._forwards[chunk]
        self.passes.append(Pass(True, chunk, number, overlaps=overlaps))
        self._forwards[chunk] += 1

    def backward(self, chunk: int, part: BackwardPart = "whole") -> None:
        """Append a chunk's next backward, or its input gradient."""
        number = self._backwards[chunk]
        self.passes.append(Pass(False, chunk, number, part))
        self._backwards[chunk] += 1
        if part == "input":
            self._pending[chunk].append((chunk, number))

    def weights(self, chunk: int = 0) -> None:
        """Append the oldest pending weight gradients of the chunk's queue."""
        self.passes.append(Pass(False, *self._pending[chunk].popleft(), "weight"))

    def both_parts(self, chunk: int) -> None:
        """Append an input gradient, then weight gradients."""
        self.backward(chunk, "input")
        self.weights(chunk)

    def finish(self) -> None:
        """Append all pending weight gradients, those of the last chunk first."""
        for chunk in (1, 0):
            while self._pending[chunk]:
                self.weights(chunk)
