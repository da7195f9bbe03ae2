"""Run modes that no measured step takes, on a tiny model."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpu.model_case import ModelCase, Runner, plan_of, problem_of
from gpu.stage import Setting, Values

from shardwright.spec.report.timeline import from_perfetto

STEPS = 5
GRAPHS, TRACED = "float32, CUDA graphs", "a traced step"
LOSS_TOLERANCE = 1e-3
"""Of losses, relative: graphs add in another order than eager operations."""
COUNTER = "allocated_bytes"


def tries(case: ModelCase, setting: Setting) -> dict[str, Callable[[], Values]]:
    """Trials by name; cores have no graphs."""
    trials: dict[str, Callable[[], Values]] = {TRACED: partial(_traced, case, setting)}
    if setting.device.type == "cuda":
        trials[GRAPHS] = partial(_graphs, case, setting)
    return trials


def _graphs(case: ModelCase, setting: Setting) -> Values:
    """Blocks replayed as graphs, beside the same steps run eagerly.

    Attention is written out: the flash kernel takes no float32.

    Raises:
        ValueError: the losses differ.
    """
    problem = problem_of(case, setting, dtype="fp32")
    losses = {}
    with Runner(setting) as runner:
        for mode in ("none", "cuda_graph"):
            plan = plan_of(problem, 1, compiled=mode)
            losses[mode] = runner.run(plan, STEPS, attention="unfused")["losses"]
    eager, graph = losses["none"], losses["cuda_graph"]
    if not all(
        math.isclose(a, b, rel_tol=LOSS_TOLERANCE) for a, b in zip(eager, graph, strict=True)
    ):
        raise ValueError(f"losses {graph} of graphs, {eager} of eager steps")
    return {"said": f"losses {graph[0]:.4f} to {graph[1]:.4f}, as eagerly", "losses": losses}


def _traced(case: ModelCase, setting: Setting) -> Values:
    path = setting.out / "jobs" / "trace.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with Runner(setting) as runner:
        plan = plan_of(problem_of(case, setting), 1)
        runner.run(plan, STEPS, trace_file=str(path))
    return check_trace(path)


def check_trace(path: Path) -> Values:
    """Read a written trace.

    Raises:
        InputError: it is no timeline.
        ValueError: it has no spans, or does not say how much memory was in use.
    """
    timeline = from_perfetto(path.read_text(encoding="utf-8"), str(path))
    peak = timeline.peak(0, COUNTER)
    if not timeline.spans or not peak:
        raise ValueError(f"{len(timeline.spans)} spans, {COUNTER} {peak:.0f} at most")
    message = f"{len(timeline.spans)} spans, {COUNTER} {peak / 2**20:.1f} MiB at most"
    return {"said": message, "spans": len(timeline.spans), "peak_bytes": peak}
