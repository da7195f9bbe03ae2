"""Other frameworks' files as plans, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..frameworks.import_plan import import_plan as read_plan
from ..planning.report import memory_rule, simulate_plan
from ..planning.uniform_plan import strategy_flags
from ..problem.model_and_cluster import ClusterLike, ModelLike
from ..problem.names import unknown_argument
from ..problem.resolve import Inputs
from .plan_handle import SimulationHandle, simulation_handle


def import_plan(
    path: str | Path,
    cluster: ClusterLike | None = None,
    *,
    framework: str | None = None,
    model: ModelLike | None = None,
    oom_risk: float | None = None,
    **flags: Any,
) -> SimulationHandle:
    """Read a framework's configuration as a plan, and price it.

    Args:
        path: the file.
        cluster: the machines that it is for.
        framework: its kind; None: found by its keys.
        model: where the file does not say it.
        oom_risk: accepted chance of running out of memory, 0.05 if None.
        flags: flags of ``plan simulate`` that the file leaves out.

    Raises:
        InputError: no readable file of a framework, a key without a counterpart, or a flag that
            the file decides.
    """
    inputs = {name: flags[name] for name in flags if name in Inputs.__dataclass_fields__}
    strategy = {name: flags[name] for name in flags if name in strategy_flags()}
    for name in flags:
        if name not in inputs and name not in strategy:
            raise unknown_argument(name, (*Inputs.__dataclass_fields__, *strategy_flags()))
    given = Inputs(cluster=cluster, model=model, **inputs)
    read = read_plan(str(path), framework, given, strategy)
    problem, risk = read.problem, memory_rule(oom_risk).risk
    simulated = simulate_plan(read.plan, problem.stack, problem.measured, read.assumptions, risk)
    return simulation_handle(simulated, problem.stack, problem.measured, risk)
