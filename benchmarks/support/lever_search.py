"""A search with toys of techniques in play, or with none: ``python -m support.lever_search WORD``.

A process of its own, whose seconds and memory are the search's. It prints JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace

from toys.levers import KNOWN

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.solve import solve
from shardwright.planner.technique import KnownTechniques

NONE = KnownTechniques(values=(), prices=(), choices=())
ASKED = Inputs(
    model="llama-3-70b", cluster="8x8xH100-80GB", global_batch=512, seq_len=8192, host_gib=64
)


def main(word: str) -> None:
    """Search with three techniques of four values each (``toys``), or with none."""
    problem = replace(resolve(ASKED), techniques=KNOWN if word == "toys" else NONE)
    start_s = time.process_time()
    found = solve(problem)
    seconds = time.process_time() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"seconds": seconds, "gap": found.search.gap, "peak_bytes": peak_bytes}
    figures["step_time_s"] = found.prediction.step_time_s
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
