"""Measured runs explained, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..diagnose.diagnosis import Diagnosis
from ..diagnose.diagnosis import diagnose as explain_run
from ..diagnose.measured_run import RunQuestion
from ..planning.uniform_plan import strategy_flags
from ..problem.model_and_cluster import ClusterLike, ModelLike
from ..problem.names import unknown_argument
from ..problem.resolve import Inputs


def diagnose(
    path: str | Path,
    cluster: ClusterLike | None = None,
    *,
    config: str | Path | None = None,
    framework: str | None = None,
    model: ModelLike | None = None,
    measured_step_s: float | None = None,
    tokens_per_s: float | None = None,
    trace: str | Path | None = None,
    oom_risk: float | None = None,
    **flags: Any,
) -> Diagnosis:
    """Explain a measured run by its configuration, and rank changes by gain.

    Args:
        path: a training log, or a framework's configuration or a plan with a measured figure.
        cluster: the machines that it ran on.
        config: the configuration or plan of a log that prints none.
        framework: the kind of a configuration; None: found by its keys.
        model: where the file does not say it.
        measured_step_s: seconds of a measured step, in place of a log's.
        tokens_per_s: measured tokens a second of all devices, likewise.
        trace: a trace of one rank by torch.profiler.
        oom_risk: accepted chance of running out of memory, 0.05 if None.
        flags: flags of ``plan simulate`` that the file leaves out.

    Raises:
        InputError: no usable log, configuration, plan, figure or trace.
    """
    inputs = {name: flags[name] for name in flags if name in Inputs.__dataclass_fields__}
    strategy = {name: flags[name] for name in flags if name in strategy_flags()}
    for name in flags:
        if name not in inputs and name not in strategy:
            raise unknown_argument(name, (*Inputs.__dataclass_fields__, *strategy_flags()))
    question = RunQuestion(
        path=str(path),
        config=None if config is None else str(config),
        framework=framework,
        given=Inputs(cluster=cluster, model=model, **inputs),
        strategy=strategy,
        measured_s=measured_step_s,
        tokens_per_s=tokens_per_s,
        risk=oom_risk,
    )
    return explain_run(question, None if trace is None else str(trace))
