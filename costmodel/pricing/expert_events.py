"""Times of every stage of experts' rows in chunks, event by event on three streams.

The order of ``expert_streams``, whose expression gives the last end alone: a stream runs its stages
in order, and a stage waits for the one before it in its chunk.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..symbolic.work_overlap import ExpertStage
from .expert_streams import ChunkSeconds

ExpertStream = Literal["outer", "inner", "products"]
STREAM_OF: dict[ExpertStage, ExpertStream] = {
    "dispatch": "outer",
    "gather": "inner",
    "experts": "products",
    "weights": "products",
    "scatter": "inner",
    "combine": "outer",
}


class ChunkEvent(NamedTuple):
    """A stage of a chunk on its stream; ``window``: other work on the outer one, of no chunk."""

    stream: ExpertStream
    stage: ExpertStage | Literal["window"]
    chunk: int
    start_s: float
    end_s: float


class _Streams:
    """Events so far, and when each stream is free."""

    def __init__(self, each: ChunkSeconds) -> None:
        self._each = each
        self._free_s: dict[ExpertStream, float] = dict.fromkeys(STREAM_OF.values(), 0.0)
        self.events: list[ChunkEvent] = []

    def run(self, stage: ExpertStage, chunk: int, after_s: float) -> float:
        """Run a chunk's stage once its rows are there; returns its end."""
        return self._add(STREAM_OF[stage], stage, chunk, after_s, getattr(self._each, stage))

    def wait(self, seconds: float) -> None:
        """Run a window's work on the outer stream."""
        self._add("outer", "window", 0, 0.0, seconds)

    def _add(
        self,
        stream: ExpertStream,
        stage: ExpertStage | Literal["window"],
        chunk: int,
        after_s: float,
        seconds: float,
    ) -> float:
        start_s = max(after_s, self._free_s[stream])
        end_s = self._free_s[stream] = start_s + seconds
        if seconds:
            self.events.append(ChunkEvent(stream, stage, chunk, start_s, end_s))
        return end_s


def chunk_events(chunks: int, each: ChunkSeconds, window_s: float = 0.0) -> list[ChunkEvent]:
    """Every stage that takes time, by stream in order.

    Args:
        chunks: at least 1.
        each: seconds of one chunk at each stage.
        window_s: of other work on the outer stream, between dispatches and combines.
    """
    streams, every = _Streams(each), range(chunks)
    sent = [streams.run("dispatch", chunk, 0.0) for chunk in every]
    there = [streams.run("gather", chunk, sent[chunk]) for chunk in every]
    made = []
    for chunk in every:
        made.append(streams.run("experts", chunk, there[chunk]))
        streams.run("weights", chunk, made[chunk])
    streams.wait(window_s)
    left = [streams.run("scatter", chunk, made[chunk]) for chunk in every]
    for chunk in every:
        streams.run("combine", chunk, left[chunk])
    return streams.events
