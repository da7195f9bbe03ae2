"""Simulation from Python: a plan priced, or a model under one strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...spec.errors import InputError
from ...spec.techniques import TECHNIQUES
from ..planning.layer_cut import LayerCounts
from ..planning.report import memory_rule, simulate_plan
from ..planning.training import priced_report, trained_report
from ..planning.uniform_plan import CORE_FLAGS, UniformStrategy, strategy_flags, uniform_plan
from ..problem.arguments import arguments_named
from ..problem.expert_load import LoadLike
from ..problem.model_and_cluster import ClusterLike, ModelLike
from ..problem.names import unknown_argument
from ..problem.price_file import PricesLike, prices_of
from ..problem.resolve import Inputs, plan_pricing, resolve
from ..problem.workload_size import LengthsLike
from .plan_handle import PlanHandle, SimulationHandle, simulation_handle
from .plan_source import PLAN_TEXT, PRICING_FLAGS, PlanLike, is_plan, priced

PLAN_ONLY_FLAGS = ("model", "cluster", "objective", "prices", "allow")
INPUT_FLAGS = tuple(n for n in Inputs.__dataclass_fields__ if n not in PLAN_ONLY_FLAGS)
STRATEGY_FLAGS = strategy_flags()
STRATEGY_ARGUMENTS = (*CORE_FLAGS, "techniques")
TECHNIQUE_NAMES = tuple(item.name for item in TECHNIQUES)


@arguments_named
def simulate(
    plan_or_model: PlanLike | ModelLike | None = None,
    cluster: ClusterLike | None = None,
    *,
    global_batch: int | None = None, global_batch_tokens: int | None = None,
    seq_len: int | None = None, task: str | None = None,
    dtype: str | None = None, grad_dtype: str | None = None,
    communication_dtype: str | None = None,
    master_dtype: str | None = None, moment_dtype: str | None = None,
    optimizer: str | None = None, trainable: str | None = None,
    expert_load: LoadLike | None = None, lengths: LengthsLike | None = None,
    memory_gib: float | None = None, host_gib: float | None = None,
    nvme_gib: float | None = None, oom_risk: float | None = None,
    prices: PricesLike | None = None, tokens: str | float | None = None,
    stack: str | None = None, attention: str | None = None,
    overlap: str | None = None, calibration: str | None = None,
    tp: int | None = None, pp: int | None = None, vpp: int | None = None, cp: int | None = None,
    ep: int | None = None, etp: int | None = None, dp: int | None = None,
    layers_per_stage: LayerCounts | None = None,
    first_stage_layers: int | None = None, last_stage_layers: int | None = None,
    sp: str | None = None, shard: str | None = None, schedule: str | None = None,
    micro_batch: int | None = None, recompute: str | None = None,
    techniques: Mapping[str, str] | None = None,
) -> SimulationHandle:  # fmt: skip
    """Price one plan, feasible or not.

    ``plan_or_model`` is a plan (a handle, Plan, its document, or the path of a ``.json`` file
    without a cluster), or a model as for ``plan``. Beside a plan only what prices it is taken:
    ``stack``, ``attention``, ``overlap``, ``calibration`` and ``oom_risk``, the accepted chance of
    running out of memory (0.05); a report and a handle keep theirs unless these say otherwise.
    ``prices`` (a path, a mapping or Prices) and ``tokens`` of a whole training, such as ``2T``, add
    its days, device-hours and cost. With a model, the arguments are the flags of ``plan
    simulate``; ``techniques`` holds words of techniques by name, each of which is an argument of
    its own too.

    Raises:
        InputError: an argument that cannot be used.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    done = simulated(plan_or_model, cluster, given, oom_risk)
    report = priced_report(done.report, prices_of(prices, done.report.plan.cluster))
    return replace(done, report=trained_report(report, tokens))


def simulated(
    source: Any, cluster: Any, given: Mapping[str, Any], oom_risk: float | None
) -> SimulationHandle:
    """Price a plan, or a model under the strategy of the arguments ``given``."""
    given = {name: given[name] for name in given if name in (*INPUT_FLAGS, *STRATEGY_ARGUMENTS)}
    risk = memory_rule(oom_risk).risk
    if cluster is None and is_plan(source):
        for name in given:
            if name not in PRICING_FLAGS:
                raise InputError(name, given[name], "nothing beside a plan, which decides it")
        given_plan, inputs, risk = priced(source, given, oom_risk)
        stack, measured, notes = plan_pricing(given_plan, inputs)
        done = simulate_plan(given_plan, stack, measured, notes, risk)
        return simulation_handle(done, stack, measured, risk)
    inputs = Inputs(
        model=source,
        cluster=cluster,
        **{name: value for name, value in given.items() if name in INPUT_FLAGS},
    )
    words = given.pop("techniques", {})
    if not isinstance(words, Mapping):
        example = {TECHNIQUE_NAMES[0]: TECHNIQUES[0].words[0]}
        raise InputError("techniques", repr(words), "a mapping of names to words", repr(example))
    for name in words:
        if name not in TECHNIQUE_NAMES:
            raise unknown_argument(name, TECHNIQUE_NAMES)
    problem = resolve(inputs)
    made, notes = uniform_plan(problem, UniformStrategy.from_flags({**given, **words}))
    every = problem.assumptions + notes
    done = simulate_plan(made, problem.stack, problem.measured, every, risk)
    return simulation_handle(done, problem.stack, problem.measured, risk)


def handle_of(plan: PlanLike, pricing: Mapping[str, str]) -> PlanHandle:
    """A handle as it is, or of a plan simulated under ``pricing``.

    Raises:
        InputError: it is not a plan.
    """
    if isinstance(plan, PlanHandle) and not pricing:
        return plan
    if not is_plan(plan):
        raise InputError("plan", plan, PLAN_TEXT)
    return simulated(plan, None, pricing, None)
