"""Our search under Galvatron's costs, start-up not timed; JSON.

Run as a script: PROFILES GIB BATCH.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from shardwright.api.planning.galvatron_job import galvatron_job
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.galvatron.search import search
from shardwright.planner.galvatron.translate import legality


def main(profiles: str, gib: int, batch: int) -> dict[str, Any]:
    """Seconds and samples a second of one search."""
    inputs = Inputs(model="llama-2-7b", cluster="1x8xA100-80GB", global_batch=batch, seq_len=2048,
                   memory_gib=float(gib), calibration="none")  # fmt: skip
    problem = resolve(inputs)
    job = galvatron_job(problem, profiles)
    legal = legality(problem.model, problem.workload, job)
    start_s = time.perf_counter()
    outcome = search(job, gib * 1024, legal)
    seconds = time.perf_counter() - start_s
    if outcome is None:
        raise SystemExit("nothing fits")
    gap = outcome.price.step_s / outcome.lower_bound_s - 1
    return {"seconds": seconds, "samples_per_s": batch / outcome.price.step_s, "gap": gap}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
