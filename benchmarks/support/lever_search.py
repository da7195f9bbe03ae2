"""A search with techniques in play: ``python -m support.lever_search WORD [QUESTION]``.

A process of its own, whose seconds and memory are the search's. It prints JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.paths import BENCHMARKS, ROOT
from toys.levers import KNOWN

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.solve import solve
from shardwright.planner.technique import KnownTechniques, Place
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.techniques import tp_overlap

TIMEOUT_S = 500.0
LARGE = Inputs(model="llama-3-70b", cluster="8x8xH100-80GB", global_batch=512, seq_len=8192)
HOSTED = "llama-3-70b with memory of hosts"
QUESTIONS = {
    HOSTED: replace(LARGE, host_gib=64),
    "llama-3-70b": LARGE,
    "llama-3-8b": Inputs(model="llama-3-8b", cluster="4x8xL40S", global_batch=256, seq_len=4096),
}


def every_chunk(place: Place) -> Iterable[tp_overlap.TensorParallelOverlap]:
    """Every number of chunks, where a layer's collectives can be cut."""
    named = tp_overlap.NAMED.values()
    return (value for value in named if value.chunks > 1) if place.strategy.megatron_sp else ()


TECHNIQUES = {
    "none": KnownTechniques(values=(), prices=(), choices=()),
    "toys": KNOWN,
    "shipped": SHIPPED,
    "chunks": replace(
        SHIPPED,
        choices=tuple(
            replace(choice, tried=every_chunk) if choice.name == tp_overlap.NAME else choice
            for choice in SHIPPED.choices
        ),
    ),
}
"""Those in play, by word; ``toys``: three of four values each; ``chunks``: ``tp_overlap`` tried."""


def searched(word: str, question: str = HOSTED) -> dict[str, float]:
    """Figures of a search in a process of its own: seconds, bytes, gap, step."""
    paths = (str(BENCHMARKS), str(Path(ROOT, "tests", "support")), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-m", "support.lever_search", word, question],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(word: str, question: str = HOSTED) -> None:
    """Search with the techniques of a word."""
    problem = replace(resolve(QUESTIONS[question]), techniques=TECHNIQUES[word])
    start_s = time.process_time()
    found = solve(problem)
    seconds = time.process_time() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"seconds": seconds, "gap": found.search.gap, "peak_bytes": peak_bytes}
    figures["step_time_s"] = found.prediction.step_time_s
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
