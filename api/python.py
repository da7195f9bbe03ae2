"""Python interface: ``import shardwright as sw; p = sw.plan("llama-3-8b", "8xH100", …)``.

Arguments are named as the command line's flags. Errors are those of ``sw.errors``, one line each,
naming the argument instead of the flag.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..planner.solve.options import SolveOptions
from ..spec import errors
from ..spec.inputs.preference import simple_within
from ..spec.inputs.token_count import token_count
from .catalogue.models import models_document as models
from .client.client import Client
from .frameworks.keep_to import kept_to, refuse_beside
from .notebook.catalogue import clusters, validate
from .notebook.checkpoint_handle import CheckpointHandle, checkpoint
from .notebook.comparison_handle import ComparisonHandle
from .notebook.data_handle import data
from .notebook.diagnose import diagnose
from .notebook.execute import execute, parallelize
from .notebook.explanation_handle import ExplanationHandle
from .notebook.import_plan import import_plan
from .notebook.plan_handle import PlanHandle, SimulationHandle
from .notebook.plan_source import PlanLike, file_words, priced, pricing_words, with_imports
from .notebook.simulate import handle_of, simulate
from .notebook.size import size
from .notebook.what_if_handle import WhatIfs
from .planning.galvatron_flags import GALVATRON_RULE, uses_galvatron_costs
from .planning.galvatron_report import galvatron_report
from .planning.report import memory_rule
from .planning.solved_report import solved_report
from .planning.training import TOKENS_FLAG, trained_report
from .problem.arguments import SearchOptions, arguments_named
from .problem.expert_load import LoadLike
from .problem.model_and_cluster import ClusterLike, ModelLike
from .problem.pins import PinsLike, pin_texts, resolve_pins
from .problem.price_file import PricesLike
from .problem.resolve import Inputs, resolve
from .problem.workload_size import LengthsLike
from .views.comparison import ComparisonSide
from .what_if.inputs import SetValues, SweepValues, question_of, with_traces_read
from .what_if.what_if import split_deadline
from .what_if.what_if import what_if as answer_what_if

INPUT_NAMES = frozenset(Inputs.__dataclass_fields__)
__all__ = [
    "CheckpointHandle",
    "Client",
    "PlanHandle",
    "SimulationHandle",
    "WhatIfs",
    "checkpoint",
    "clusters",
    "compare",
    "data",
    "diagnose",
    "errors",
    "execute",
    "explain",
    "import_plan",
    "models",
    "parallelize",
    "plan",
    "simulate",
    "size",
    "validate",
    "what_if",
]


@arguments_named
def plan(
    model: ModelLike | Any | None = None,
    cluster: ClusterLike | None = None,
    *,
    global_batch: int | None = None, global_batch_tokens: int | None = None,
    seq_len: int | None = None, dtype: str | None = None, grad_dtype: str | None = None,
    communication_dtype: str | None = None, master_dtype: str | None = None,
    moment_dtype: str | None = None, optimizer: str | None = None, trainable: str | None = None,
    expert_load: LoadLike | None = None, lengths: LengthsLike | None = None,
    memory_gib: float | None = None, host_gib: float | None = None,
    nvme_gib: float | None = None, oom_risk: float | None = None,
    stack: str | None = None, calibration: str | None = None,
    objective: str | None = None, prices: PricesLike | None = None,
    tokens: str | float | None = None, prefer: str = "simple",
    pins: PinsLike = (), allow: str | None = None,
    top: int = 3, deadline_s: float | None = None, executable: bool = False,
    for_: str | None = None, galvatron_profile: str | Path | None = None, costs: str | None = None,
) -> PlanHandle:  # fmt: skip
    """Search for the best plan; an InfeasibleError where nothing fits.

    Args:
        model: a name, path, typed document, ModelSpec or ``nn.Module``; None: the embedded one.
        cluster: a text, a path, a typed document, or a ClusterSpec; this machine if None.
        global_batch: samples of a step.
        global_batch_tokens: tokens of a step, instead of samples.
        seq_len: tokens of a sample.
        dtype: bf16, fp16, fp32, or bf16 with products in fp8, fp8-block, mxfp8 or nvfp4.
        grad_dtype: format of gradients, fp32 if None.
        communication_dtype: format that gradients are reduced in, ``grad_dtype`` if None.
        master_dtype: format of master weights; ``none`` for no separate ones.
        moment_dtype: format of the optimizer's moments, fp32 if None.
        optimizer: adamw, adam, adamw8bit, lion, muon, sgd or adafactor.
        trainable: ``full``, ``lora:r=16,targets=q_proj,v_proj`` or ``frozen:TOWER``.
        expert_load: ``even`` (None), ``power:A``, or the path of a routing trace.
        lengths: path of a ``data.json`` whose documents share sequences; None: one document each.
        memory_gib: cap on a device's memory in GiB, its context included.
        host_gib: host memory per device in GiB, for offloading.
        nvme_gib: room on the host's drives per device in GiB, for offloading.
        oom_risk: accepted chance of running out of memory, 0.05 if None.
        stack: training software that is priced, ``NAME`` or ``NAME:setting=value,…``.
        calibration: the name of a stored one; ``none`` to ignore this machine's profile.
        objective: ``throughput`` (None), ``cost``, ``largest-batch`` or ``largest-sequence``.
        prices: a path, the content of a price file as a mapping, or Prices.
        tokens: of a whole training, such as ``2T``: its days, device-hours and cost.
        prefer: ``simple[:P%]``, the simplest plan within P (1) per cent of the best; ``best``.
        pins: fixed decisions: ``{"tp": 8, "recompute@1-40": "full"}``, ``["tp=8"]``, ``"tp=8"``.
        allow: comma-separated techniques whose lossy values are tried too.
        top: number of other plans to report.
        deadline_s: answer after so many seconds with the best plan so far.
        executable: keep to what ``PlanHandle.execute`` runs.
        for_: keep to what a framework can run and its files can say, at its prices.
        galvatron_profile: a folder that Galvatron's profilers wrote.
        costs: with such a profile: ``galvatron`` (None) or ``ours``.
    """
    inputs = Inputs(**{name: value for name, value in locals().items() if name in INPUT_NAMES})
    search = SearchOptions(pin_texts(pins), top, deadline_s, oom_risk, executable, prefer, for_)
    foreign = {"galvatron_profile": galvatron_profile, "costs": costs}
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
        **foreign,
        "execute": options.executable,
        "pins": options.pins,
        "oom_risk": options.oom_risk,
        "calibration": inputs.calibration,
        "stack": inputs.stack,
    }
    options.check()
    within = simple_within(options.prefer)
    galvatron, free = uses_galvatron_costs(flags), None
    if options.framework is None:
        problem = resolve(inputs)
    else:
        beside = {"executable": options.executable, "galvatron_profile": galvatron}
        refuse_beside(options.framework, **beside)
        problem, free = kept_to(options.framework, inputs)
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
        free,
    )
    return PlanHandle(report=report, stack=problem.stack, measured=problem.measured, risk=risk)


@arguments_named
def explain(
    plan: PlanLike,
    *,
    stack: str | None = None,
    attention: str | None = None,
    overlap: str | None = None,
    calibration: str | None = None,
    framework: str | None = None, model: ModelLike | None = None,
    cluster: ClusterLike | None = None, global_batch: int | None = None,
    seq_len: int | None = None,
) -> ExplanationHandle:  # fmt: skip
    """Break down a plan's step time and memory.

    Args:
        plan: a handle, a Plan, or the path of a plan's or a framework's file.
        stack: training software that prices it; a handle keeps its own, as for those below.
        attention: ``flash`` or ``unfused``.
        overlap: which traffic is hidden: ``none``, ``dp``, ``dp+tp`` or ``all``.
        calibration: the name of a stored one, or ``none``.
        framework: kind of a framework's file; None: found by its keys.
        model: of such a file, where it does not say it, as for those below.
        cluster: the machines that it is for.
        global_batch: samples of a step.
        seq_len: tokens of a sample.

    Raises:
        InputError: no usable plan.
    """
    pricing = pricing_words(stack, attention, overlap, calibration)
    words = file_words(framework, model, cluster, global_batch, seq_len)
    (source,) = with_imports([plan], words, pricing)
    return handle_of(source, pricing).explain()


@arguments_named
def compare(
    first: PlanLike,
    second: PlanLike,
    *,
    stack: str | None = None,
    attention: str | None = None,
    overlap: str | None = None,
    calibration: str | None = None,
    framework: str | None = None, model: ModelLike | None = None,
    cluster: ClusterLike | None = None, global_batch: int | None = None,
    seq_len: int | None = None,
) -> ComparisonHandle:  # fmt: skip
    """Compare two plans, term by term.

    Args:
        first: a handle, a Plan, or the path of a plan's or a framework's file.
        second: likewise; its model, cluster or workload may differ.
        stack: training software that prices both; a handle keeps its own, as for those below.
        attention: ``flash`` or ``unfused``.
        overlap: which traffic is hidden: ``none``, ``dp``, ``dp+tp`` or ``all``.
        calibration: the name of a stored one, or ``none``.
        framework: kind of a framework's file; None: found by its keys.
        model: of such a file, where it does not say it, as for those below.
        cluster: the machines that it is for.
        global_batch: samples of a step.
        seq_len: tokens of a sample.

    Raises:
        InputError: no usable plans.
    """
    pricing = pricing_words(stack, attention, overlap, calibration)
    words = file_words(framework, model, cluster, global_batch, seq_len)
    plans = with_imports([first, second], words, pricing)
    sides = [
        ComparisonSide(name=name, report=handle_of(plan, pricing).simulate().report)
        for name, plan in zip(("first", "second"), plans, strict=True)
    ]
    return ComparisonHandle(first=sides[0], second=sides[1])


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
    stack: str | None = None,
    attention: str | None = None,
    overlap: str | None = None,
    calibration: str | None = None,
    framework: str | None = None, model: ModelLike | None = None,
    cluster: ClusterLike | None = None, global_batch: int | None = None,
    seq_len: int | None = None,
) -> WhatIfs:  # fmt: skip
    """Price a plan in a changed setting, as it is and re-planned.

    Args:
        plan: a handle, a Plan, or the path of a plan's or a framework's file.
        set: ``"inter_node.bandwidth=2x"``, several such texts, or a mapping of keys to values;
            numbers are SI. ``plan what-if --help`` lists the keys.
        sweep: ``"global_batch=64,128"``, or a mapping of one key to its values: one row each.
        add: a cluster that joins the plan's.
        scale: ``batch`` grows the global batch with the devices, ``fixed`` (None) keeps it.
        deadline_s: answer after about so many seconds with the best plans so far.
        oom_risk: accepted chance of running out of memory; a handle keeps its own.
        stack: training software that prices it; a handle keeps its own, as for those below.
        attention: ``flash`` or ``unfused``.
        overlap: which traffic is hidden: ``none``, ``dp``, ``dp+tp`` or ``all``.
        calibration: the name of a stored one, or ``none``.
        framework: kind of a framework's file; None: found by its keys.
        model: of such a file, where it does not say it, as for those below.
        cluster: the machines that it is for.
        global_batch: samples of a step.
        seq_len: tokens of a sample.

    Returns:
        The answers, one row per value; ``.to_frame()`` makes a pandas DataFrame.

    Raises:
        InputError: a question that cannot be asked of this plan.
    """
    pricing = pricing_words(stack, attention, overlap, calibration)
    words = file_words(framework, model, cluster, global_batch, seq_len)
    (source,) = with_imports([plan], words, pricing)
    baseline, inputs, risk = priced(source, pricing, oom_risk)
    question = with_traces_read(question_of(set, sweep, add, scale))
    budget = None if deadline_s is None else split_deadline(deadline_s)
    return WhatIfs(result=answer_what_if(baseline, question, inputs, risk, budget))
