"""Python interface: ``import shardwright as sw; p = sw.plan("llama-3-8b", "8xH100", …)``.

Arguments are named as the command line's flags. Errors are those of ``shardwright.spec.errors``,
one line each, naming the argument instead of the flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..planner.solve.options import SolveOptions
from ..spec.errors import InputError
from ..spec.inputs.preference import simple_within
from ..spec.inputs.token_count import token_count
from .catalogue.models import models_document as models
from .client.client import Client
from .notebook.catalogue import clusters, validate
from .notebook.comparison_handle import ComparisonHandle
from .notebook.explanation_handle import ExplanationHandle
from .notebook.plan_handle import PlanHandle, SimulationHandle, simulation_handle
from .notebook.plan_source import (
    PlanLike,
    checked_flags,
    document_of,
    is_plan,
    priced,
)
from .notebook.run_result import RunResult
from .notebook.what_if_handle import WhatIfs
from .planning.galvatron_flags import GALVATRON_RULE, uses_galvatron_costs
from .planning.galvatron_report import galvatron_report
from .planning.report import memory_rule, simulate_plan
from .planning.solved_report import solved_report
from .planning.training import TOKENS_FLAG, priced_report, trained_report
from .planning.uniform_plan import UniformStrategy, strategy_flags, uniform_plan
from .problem.arguments import SearchOptions, arguments_named
from .problem.model_and_cluster import ClusterLike, ModelLike
from .problem.pins import resolve_pins
from .problem.price_file import PricesLike, prices_of
from .problem.report_pricing import PlanDocument, run_pricing
from .problem.resolve import Inputs, plan_pricing, resolve
from .views.comparison import ComparisonSide
from .what_if.inputs import SetValues, SweepValues, question_of
from .what_if.what_if import split_deadline
from .what_if.what_if import what_if as answer_what_if

INPUT_NAMES = frozenset(Inputs.__dataclass_fields__)
__all__ = [
    "Client",
    "PlanHandle",
    "SimulationHandle",
    "WhatIfs",
    "clusters",
    "compare",
    "execute",
    "explain",
    "models",
    "parallelize",
    "plan",
    "simulate",
    "validate",
    "what_if",
]


@arguments_named
def plan(
    model: ModelLike | Any | None = None,
    cluster: ClusterLike | None = None,
    *,
    global_batch: int | None = None,
    global_batch_tokens: int | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
    grad_dtype: str | None = None,
    master_dtype: str | None = None,
    moment_dtype: str | None = None,
    optimizer: str | None = None,
    trainable: str | None = None,
    memory_gib: float | None = None,
    host_gib: float | None = None,
    stack: str | None = None,
    calibration: str | None = None,
    objective: str | None = None,
    prices: PricesLike | None = None,
    tokens: str | float | None = None,
    prefer: str = "simple",
    pins: Iterable[str] = (),
    allow: str | None = None,
    top: int = 3,
    deadline_s: float | None = None,
    oom_risk: float | None = None,
    executable: bool = False,
    **foreign: Any,
) -> PlanHandle:
    """Search for the best plan; an InfeasibleError where nothing fits.

    Args:
        model: a name, path, typed document, ModelSpec or ``nn.Module``; None: the embedded one.
        cluster: a text, a path, a typed document, or a ClusterSpec; this machine if None.
        global_batch: samples of a step.
        global_batch_tokens: tokens of a step, instead of samples.
        seq_len: tokens of a sample.
        dtype: bf16, fp16, fp32, or bf16 with products in fp8, fp8-block, mxfp8 or nvfp4.
        grad_dtype: format of gradients, fp32 if None.
        master_dtype: format of master weights; ``none`` for no separate ones.
        moment_dtype: format of the optimizer's moments, fp32 if None.
        optimizer: adamw, adam, adamw8bit, lion, muon, sgd or adafactor.
        trainable: ``full``, ``lora:r=16,targets=q_proj,v_proj`` or ``frozen:TOWER``.
        memory_gib: cap on a device's memory in GiB, its context included.
        host_gib: host memory per device in GiB, for offloading.
        stack: training software that is priced, ``NAME`` or ``NAME:setting=value,…``.
        calibration: the name of a stored one; ``none`` to ignore this machine's profile.
        objective: ``throughput`` (None), ``cost``, ``largest-batch`` or ``largest-sequence``.
        prices: a path, the content of a price file as a mapping, or Prices.
        tokens: of a whole training, such as ``2T``: its days, device-hours and cost.
        prefer: ``simple[:P%]``, the simplest plan within P (1) per cent of the best; ``best``.
        pins: fixed decisions, such as ``tp=8`` or ``recompute@1-40=selective-ops``.
        allow: comma-separated techniques whose lossy values are tried too.
        top: number of other plans to report.
        deadline_s: answer after so many seconds with the best plan so far.
        oom_risk: accepted chance of running out of memory, 0.05 if None.
        executable: keep to what ``PlanHandle.execute`` runs.
        foreign: ``galvatron_profile``, a folder of Galvatron's profilers, and ``costs``.
    """
    inputs = Inputs(**{name: value for name, value in locals().items() if name in INPUT_NAMES})
    search = SearchOptions(tuple(pins), top, deadline_s, oom_risk, executable, prefer)
    count = None if tokens is None else token_count(tokens, TOKENS_FLAG)
    handle = _plan_handle(replace(inputs, model=_described_model(model)), search, foreign)
    return replace(handle, report=trained_report(handle.report, count))


def _described_model(model: Any) -> ModelLike | None:
    if not hasattr(model, "named_parameters"):
        described: ModelLike | None = model
        return described
    from ..executor.user_module.describe import describe

    return describe(model, type(model).__name__)


def _plan_handle(inputs: Inputs, options: SearchOptions, foreign: dict[str, Any]) -> PlanHandle:
    """Answer under our costs, or Galvatron's with its profile."""
    flags = {
        **dict.fromkeys(GALVATRON_FLAGS),
        **checked_flags(foreign, GALVATRON_FLAGS),
        "execute": options.executable,
        "pins": options.pins,
        "oom_risk": options.oom_risk,
        "calibration": inputs.calibration,
        "stack": inputs.stack,
    }
    options.check()
    within = simple_within(options.prefer)
    galvatron, problem = uses_galvatron_costs(flags), resolve(inputs)
    if galvatron:
        limits = SolveOptions(top=options.top, deadline_s=options.deadline_s)
        report = galvatron_report(problem, flags["galvatron_profile"], limits)
        return PlanHandle(report=report, stack=problem.stack, risk=GALVATRON_RULE.risk)
    risk = memory_rule(options.oom_risk).risk
    pins = resolve_pins(options.pins, problem, options.executable)
    report = solved_report(
        problem,
        SolveOptions(
            pins=pins,
            top=options.top,
            deadline_s=options.deadline_s,
            risk=risk,
            executable=options.executable,
            simple_within=within,
        ),
    )
    return PlanHandle(report=report, stack=problem.stack, measured=problem.measured, risk=risk)


@arguments_named
def simulate(
    plan_or_model: PlanLike | ModelLike | None = None,
    cluster: ClusterLike | None = None,
    *,
    oom_risk: float | None = None,
    prices: PricesLike | None = None,
    tokens: str | float | None = None,
    **flags: Any,
) -> SimulationHandle:
    """Price one plan, feasible or not.

    Args:
        plan_or_model: a plan (handle, Plan, its document, or the path of a ``.json`` file without
            a cluster), or a model as for :func:`plan`. A report, as a document or in a file, and a
            handle keep their pricing unless ``flags`` say otherwise.
        cluster: with a model: where it runs.
        oom_risk: accepted chance of running out of memory, 0.05 if None.
        prices: a path, the content of a price file as a mapping, or Prices.
        tokens: of a whole training, such as ``2T``: its days, device-hours and cost.
        flags: with a model the flags of ``plan simulate`` (``tp=8, pp=2, global_batch=512, …``);
            with a plan only ``stack``, ``attention``, ``overlap`` and ``calibration``.

    Raises:
        InputError: an argument that cannot be used.
    """
    risk = memory_rule(oom_risk).risk
    if cluster is None and is_plan(plan_or_model):
        given_plan, inputs, risk = priced(plan_or_model, flags, oom_risk)
        stack, measured, notes = plan_pricing(given_plan, inputs)
        simulated = simulate_plan(given_plan, stack, measured, notes, risk)
    else:
        checked = checked_flags(flags, INPUT_FLAGS + STRATEGY_FLAGS)
        rest = {name: value for name, value in checked.items() if name in INPUT_FLAGS}
        strategy = {name: value for name, value in checked.items() if name in STRATEGY_FLAGS}
        problem = resolve(Inputs(model=plan_or_model, cluster=cluster, **rest))  # type: ignore[arg-type]
        made, notes = uniform_plan(problem, UniformStrategy.from_flags(strategy))
        stack, measured = problem.stack, problem.measured
        simulated = simulate_plan(made, stack, measured, problem.assumptions + notes, risk)
    report = priced_report(simulated.report, prices_of(prices, simulated.report.plan.cluster))
    simulated = replace(simulated, report=trained_report(report, tokens))
    return simulation_handle(simulated, stack, measured, risk)


GALVATRON_FLAGS = ("galvatron_profile", "costs")
RUN_PATHS = (
    "data", "tokenizer", "init_from", "save_hf", "out_dir", "checkpoint", "every", "resume",
)  # fmt: skip
PLAN_ONLY_FLAGS = ("model", "cluster", "objective", "prices", "allow")
INPUT_FLAGS = tuple(n for n in Inputs.__dataclass_fields__ if n not in PLAN_ONLY_FLAGS)
STRATEGY_FLAGS = strategy_flags()


@arguments_named
def explain(plan: PlanLike, **flags: Any) -> ExplanationHandle:
    """Break down a plan's step time and memory.

    Args:
        plan: a handle, a Plan or the path of a plan file.
        flags: ``stack``, ``attention``, ``overlap``, ``calibration``; a handle keeps its own.

    Raises:
        InputError: no usable plan.
    """
    return _handle(plan, flags).explain()


@arguments_named
def compare(first: PlanLike, second: PlanLike, **flags: Any) -> ComparisonHandle:
    """Compare two plans, term by term.

    Args:
        first: a handle, a Plan or the path of a plan file.
        second: likewise; its model, cluster or workload may differ.
        flags: ``stack``, ``attention``, ``overlap``, ``calibration``; a handle keeps its own.

    Raises:
        InputError: no usable plans.
    """
    sides = [
        ComparisonSide(name=name, report=_handle(plan, dict(flags)).simulate().report)
        for name, plan in (("first", first), ("second", second))
    ]
    return ComparisonHandle(first=sides[0], second=sides[1])


def parallelize(module: Any, plan: PlanLike, *, layers: str | None = None) -> Any:
    """Parallelize a torch module in place, for your own training loop.

    Every rank calls it, in an existing process group (torchrun); see
    ``shardwright.executor.user_module.parallelize``.

    Args:
        module: the whole module, equal on every rank.
        plan: a handle, a Plan or the path of a plan file.
        layers: dotted name of the list of repeated layers; None to find it.

    Raises:
        InputError: a plan that the module cannot follow.
    """
    from ..executor.user_module.parallelize import parallelize as parallelized

    return parallelized(module, _handle(plan, {}).plan, layers=layers)


@arguments_named
def execute(plan: PlanLike, steps: int = 20, *, verify: bool = False, **paths: Any) -> RunResult:
    """Run a plan on this machine; return the contract's ``execute`` document.

    Args:
        plan: a handle, a Plan or the path of a plan file.
        steps: optimizer step to reach.
        verify: compare losses and gradients with a single process.
        paths: ``data``, ``tokenizer``, ``init_from``, ``save_hf``, ``out_dir``, and
            ``checkpoint``, ``every`` and ``resume``.

    Raises:
        InputError: the plan cannot run on this machine.
        RunError: the run failed.
    """
    checked = checked_flags(paths, RUN_PATHS)
    handle = plan if isinstance(plan, PlanHandle) else _run_handle(document_of(plan))
    return handle.execute(steps, verify=verify, **checked)


def _run_handle(given: PlanDocument) -> PlanHandle:
    stack, measured, notes = run_pricing(given)
    report = simulate_plan(given.plan, stack, measured, notes).report
    return PlanHandle(report=report, stack=stack, measured=measured)


@arguments_named
def what_if(
    plan: PlanLike,
    *,
    set: SetValues = (),
    sweep: SweepValues | None = None,
    add: ClusterLike | None = None,
    scale: str | None = None,
    deadline_s: float | None = None,
    oom_risk: float | None = None,
    **flags: Any,
) -> WhatIfs:
    """Price a plan in a changed setting, as it is and re-planned.

    Args:
        plan: a handle, a Plan or the path of a plan file.
        set: ``"inter_node.bandwidth=2x"``, several such texts, or a mapping of keys to values;
            numbers are SI. ``plan what-if --help`` lists the keys.
        sweep: ``"global_batch=64,128"``, or a mapping of one key to its values: one row each.
        add: a cluster that joins the plan's.
        scale: ``batch`` grows the global batch with the devices, ``fixed`` (None) keeps it.
        deadline_s: answer after about so many seconds with the best plans so far.
        oom_risk: accepted chance of running out of memory; a handle keeps its own.
        flags: ``stack``, ``attention``, ``overlap``, ``calibration``; a handle keeps its own.

    Returns:
        The answers, one row per value; ``.to_frame()`` makes a pandas DataFrame.

    Raises:
        InputError: a question that cannot be asked of this plan.
    """
    baseline, inputs, risk = priced(plan, flags, oom_risk)
    question = question_of(set, sweep, add, scale)
    budget = None if deadline_s is None else split_deadline(deadline_s)
    return WhatIfs(result=answer_what_if(baseline, question, inputs, risk, budget))


def _handle(plan: PlanLike, flags: dict[str, Any]) -> PlanHandle:
    if isinstance(plan, PlanHandle) and not flags:
        return plan
    if not is_plan(plan):
        raise InputError("plan", plan, "a PlanHandle, a Plan or the path of a .json file")
    return simulate(plan, **flags)
