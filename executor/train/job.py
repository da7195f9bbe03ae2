"""The train job: build, run, measure, verify and trace a plan.

Live bytes and the trace each take a step after the measured ones, which reports no loss.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store

from ... import __version__
from ...spec.choices import ATTENTIONS, KERNEL_POLICIES
from ...spec.codec import from_document
from ...spec.errors import InputError, one_of
from ...spec.plan.plan import Plan, plan_of
from ...spec.plan.technique_groups import used_techniques
from .. import torch_compat
from ..checkpoint.foreign.restore import continue_reference
from ..checkpoint.foreign.weights import ForeignWeights
from ..checkpoint.loader import FoundCheckpoint
from ..checkpoint.session import CheckpointSession, run_facts
from ..checkpoint.settings import CheckpointSettings
from ..checkpoint.storage.far_path import is_url
from ..data.prepared import recipe_hash
from ..data.records import data_batches, random_batches
from ..data.tasks import Batch
from ..engine.engine import Engine, StepResult
from ..engine.optimizer_step import AdamWOptions
from ..host.process_memory import peak_resident_bytes, reset_peak, resident_bytes
from ..host.transfers import release
from ..launch.consistency import gather_json, require_consistency, text_digest
from ..launch.fault_injection import Fault, FaultList, attempt_of
from ..launch.preflight import preflight
from ..launch.rank_context import RankContext
from ..launch.step_requests import AgreedRequest, StepAgreement
from ..launch.unsupported import find_unsupported
from ..reference.model import Reference
from ..reference.verify import gather_gradients, verification_document, verify
from ..stage.chunk import TORCH_DTYPES
from ..stage.options import BuildOptions, Compiler
from ..stage.technique_hooks import hides_bytes
from ..stage.weight_source import WeightSource
from ..technique import RunTechniques
from ..techniques import SHIPPED
from ..tracing.sent_bytes import follow_bytes
from ..tracing.step_memory import StepMemory
from ..tracing.traced_step import trace_step
from .loop import StepHooks, reported_norm, run_steps
from .loss_file import NAME as LOSSES_NAME
from .loss_file import LossFile, rank_loss_file
from .routing_trace import RoutingTrace
from .run_endpoints import RunEndpoints, default_tokenizer
from .technique_reports import technique_reports

WARM_UP_STEPS = 2

TEXT = "text (--data, --tokenizer, or Python's own sources)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Settings of a run beside its plan.

    ``data``, ``tokenizer``: paths; ``random_tokens``: train on noise instead of text.
    ``init_from``: folder with initial weights, of any kind; ``save_hf``: folder to write at the
    end. ``out_dir``: folder of ``losses.csv``, that of the checkpoints if None. ``trace_file``:
    Perfetto trace of a step, with memory if ``follow_bytes``; ``trace`` alone only reports times.
    ``routing_trace``: CSV of the rows of each expert.
    ``kernels``: one of ``KERNEL_POLICIES``. ``compiler``: of compiled layers. ``steps``: the step
    to reach, counted across resumes from ``checkpoint``. ``faults``: for tests.
    """

    steps: int = 10
    seed: int = 0
    data: str | None = None
    tokenizer: str | None = None
    random_tokens: bool = False
    attention: str = "flash"
    kernels: str = "auto"
    verify: bool = False
    init_from: str | None = None
    save_hf: str | None = None
    out_dir: str | None = None
    trace: bool = False
    trace_file: str | None = None
    follow_bytes: bool = True
    routing_trace: str | None = None
    compiler: Compiler = "inductor"
    adamw: AdamWOptions = field(default_factory=AdamWOptions)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError("--steps", self.steps, "at least 1", 1)
        if self.attention not in ATTENTIONS:
            raise InputError("attention", self.attention, " or ".join(ATTENTIONS))
        one_of("--kernels", self.kernels, KERNEL_POLICIES)

    @property
    def loss_folder(self) -> Path | None:
        """Folder of ``losses.csv``; None to keep none, as beside checkpoints by URL."""
        folder = self.out_dir or self.checkpoint.folder
        return None if folder is None or is_url(folder) else Path(folder)


def train(
    context: RankContext, payload: dict[str, Any], techniques: RunTechniques = SHIPPED
) -> dict[str, Any] | None:
    """Run a plan per its payload; return rank 0's result, else None.

    ``payload``: ``plan`` (a document) and the fields of :class:`TrainSettings`.

    Raises:
        InputError: settings, data or tokenizer that cannot be used.
        RunError: the loss is not a number, or verification failed.
    """
    wanted = {name: value for name, value in payload.items() if name != "plan"}
    settings = from_document(TrainSettings, wanted, "settings")
    plan = plan_of(payload["plan"], "plan", techniques.values)
    require_executable(plan, techniques)
    if settings.attention != "flash" and any(layer.cp > 1 for layer in plan.layer_strategies()):
        raise InputError("attention", settings.attention, "flash: a ring merges its parts", "flash")
    endpoints = RunEndpoints(
        plan,
        context.rank,
        settings.init_from,
        settings.save_hf,
        settings.tokenizer,
        settings.data,
        reads_text=not settings.random_tokens,
    )
    batch = make_batches(plan, settings)
    facts = {**_facts(plan, settings, batch), **endpoints.facts()}
    require_consistency(facts, context.device)
    preflight(plan, context.device, techniques.values)
    ran = _trained(plan, context, settings, batch, techniques, endpoints, facts[TEXT])
    release(context.device)  # the engine refers to itself; a next one would be built beside it
    if ran.result and settings.verify and "stopped" not in ran.result:
        ran.result["verify"] = _verify(plan, context, settings, batch, ran, endpoints)
    return ran.result


class _Ran(NamedTuple):
    """Rank 0's result, steps, verified first gradients, and resume point."""

    result: dict[str, Any] | None
    steps: list[StepResult]
    gradients: dict[str, Tensor]
    begun_at: FoundCheckpoint | ForeignWeights | None


def _trained(
    plan: Plan,
    context: RankContext,
    settings: TrainSettings,
    batch: Batch,
    techniques: RunTechniques,
    endpoints: RunEndpoints,
    text: str,
) -> _Ran:
    """Train; the engine lives only in this scope."""
    reset_peak()
    before_bytes = resident_bytes()
    engine = make_engine(plan, context, settings, batch, techniques, endpoints.weight_source)
    run = run_facts(plan, settings.seed, text, settings.adamw)
    checkpoints = CheckpointSession(engine, context, settings.checkpoint, run)
    checkpoints.begin(settings.steps, spare=settings.verify)
    first = engine.step_index
    gradients: dict[str, Tensor] = {}

    def inspect() -> None:
        if settings.verify and engine.step_index == first:
            gradients.update(gather_gradients(engine))

    losses = rank_loss_file(settings.loss_folder, context, first, checkpoints.resumed)
    routing = RoutingTrace(engine, settings.routing_trace)
    hooks = _hooks(settings, context, checkpoints, routing, inspect, losses)
    steps, stopped = run_steps(
        engine, settings.steps, context, hooks, StepAgreement(_get_default_store())
    )
    checkpoints.finish()
    routing.write()
    growth = gather_json(peak_resident_bytes() - before_bytes, context.device)
    reports = technique_reports(plan, engine)
    if stopped is not None:
        result = _stopped_result(settings, engine, context, steps, growth, stopped, checkpoints)
        return _Ran(result, steps, {}, None)
    endpoints.save(engine)
    where = None if settings.trace_file is None else Path(settings.trace_file)
    memory: StepMemory | None = None
    peaks: dict[str, list[Any]] = {}
    if settings.follow_bytes and not hides_bytes(plan, context.device, techniques):
        memory, peaks = follow_bytes(engine, snapshot=where is not None)
    traced = trace_step(engine, where, memory) if settings.trace or where is not None else None
    engine.close()
    if context.rank:
        return _Ran(None, steps, gradients, checkpoints.begun_at)
    result = _result(settings, engine, steps, peaks, growth, traced)
    if reports:
        result["techniques"] = reports
    if (saved := checkpoints.document()) is not None:
        result["checkpoint"] = saved
    return _Ran(result, steps, gradients, checkpoints.begun_at)


def _stopped_result(
    settings: TrainSettings,
    engine: Engine,
    context: RankContext,
    steps: list[StepResult],
    growth: list[int],
    request: AgreedRequest,
    checkpoints: CheckpointSession,
) -> dict[str, Any] | None:
    """Rank 0's result of a run that was stopped before its last step."""
    engine.close()
    if context.rank:
        return None
    result = _result(settings, engine, steps, {}, growth, None)
    result["stopped"] = {
        "step": engine.step_index,
        "steps": settings.steps,
        "signal": request.value,
        "saved": settings.checkpoint.folder,
    }
    if (saved := checkpoints.document()) is not None:
        result["checkpoint"] = saved
    return result


def _facts(plan: Plan, settings: TrainSettings, batch: Batch) -> dict[str, str]:
    """Facts that all ranks must agree on."""
    return {
        "plan": plan.hash,
        "version of shardwright": __version__,
        "version of torch": torch_compat.version(),
        "--seed": str(settings.seed),
        "--steps": str(settings.steps),
        "--kernels": settings.kernels,
        "--verify": str(settings.verify),
        "--lr": str(settings.adamw.learning_rate),
        "--trace": str(settings.trace or settings.trace_file is not None),
        "--routing-trace": str(settings.routing_trace is not None),
        "--checkpoint, --every, --resume": str(settings.checkpoint),
        TEXT: text_digest(batch, plan.workload.global_batch) + _recipe(settings),
    }


def _recipe(settings: TrainSettings) -> str:
    """Recipe of prepared data, for the manifests of checkpoints."""
    found = None if settings.data is None else recipe_hash(Path(settings.data))
    return "" if found is None else f", recipe {found}"


def require_executable(plan: Plan, techniques: RunTechniques = SHIPPED) -> None:
    """Refuse a plan that the executor would not run as written.

    Independent of how its ranks started.

    Raises:
        InputError: layers, number formats, sharding, a schedule or techniques that are not run yet.
    """
    if unsupported := find_unsupported(plan, techniques.values):
        raise InputError("plan", unsupported.reason, unsupported.allowed)
    for name in sorted(used_techniques(plan) - {run.name for run in techniques.runs}):
        available = ", ".join(run.name for run in techniques.runs) or "none"
        raise InputError(f"techniques.{name}", "no run", f"techniques that are run: {available}")


def make_batches(plan: Plan, settings: TrainSettings) -> Batch:
    """The samples of every step."""
    if settings.random_tokens:
        return random_batches(plan, settings.seed)
    data = None if settings.data is None else Path(settings.data)
    tokenizer = default_tokenizer(data, settings.tokenizer, settings.init_from)
    return data_batches(plan, data, tokenizer, settings.seed)


def make_engine(
    plan: Plan,
    context: RankContext,
    settings: TrainSettings,
    batch: Batch,
    techniques: RunTechniques = SHIPPED,
    weight_source: WeightSource | None = None,
) -> Engine:
    """This rank's engine of the plan."""
    options = BuildOptions(
        seed=settings.seed,
        device=context.device,
        flash=settings.attention == "flash",
        prefetch=context.device.type != "cpu",
        kernels=one_of("--kernels", settings.kernels, KERNEL_POLICIES),
        collective_timeout_s=context.collective_timeout_s,
        compiler=settings.compiler,
        techniques=techniques,
        weight_source=weight_source,
    )
    return Engine(plan, context.rank, options, batch, settings.adamw, settings.steps)


def _hooks(
    settings: TrainSettings,
    context: RankContext,
    checkpoints: CheckpointSession,
    routing: RoutingTrace,
    inspect: Callable[[], None],
    losses: LossFile | None,
) -> StepHooks:
    """Fault injection, gradient capture, reports and checkpoints around a step."""
    faults, attempt = FaultList(faults=settings.faults), attempt_of(os.environ)

    def look(step: int) -> None:
        faults.inject(context.rank, step, "update", attempt)
        inspect()
        checkpoints.before_update()

    def done(step: int, last: bool) -> None:
        routing.end_step(step)
        checkpoints.after_step(step, last)

    def report(event: dict[str, Any]) -> None:
        if losses is not None:
            losses.add(event)
        context.emit(event)

    def begin(step: int) -> None:
        faults.inject(context.rank, step, "begin", attempt)

    return StepHooks(begin=begin, inspect=look, report=report, done=done)


def _result(
    settings: TrainSettings,
    engine: Engine,
    steps: list[StepResult],
    peaks: dict[str, list[Any]],
    growth: list[int],
    traced: dict[str, Any] | None,
) -> dict[str, Any]:
    plan, times = engine.plan, [step.time_s for step in steps]
    step_time_s = statistics.median(times[WARM_UP_STEPS:] or times[-1:])
    devices = sum(stage.device_count for stage in plan.program.stages)
    measured: dict[str, Any] = {
        "step_time_s": step_time_s,
        "tokens_per_s_per_device": plan.workload.tokens_per_step / step_time_s / devices,
        "losses": [step.loss for step in steps],
        **peaks,
    }
    if balances := [step.balance.to_document() for step in steps if step.balance]:
        measured["balance"] = {key: [found[key] for found in balances] for key in balances[0]}
    result = {
        "plan_hash": plan.hash,
        "measured": measured,
        "step_times_s": times,
        "gradient_norms": [reported_norm(step) for step in steps],
        "skipped_steps": [n for n, step in enumerate(steps, 1) if step.skipped],
        "rss_growth_bytes": growth,
        "kernels": [choice.to_document() for choice in engine.kernels.choices()],
    }
    if settings.data is not None and (found := recipe_hash(Path(settings.data))) is not None:
        result["recipe_hash"] = found
    if settings.loss_folder is not None:
        result["losses_file"] = str(settings.loss_folder / LOSSES_NAME)
    return result if traced is None else {**result, "traced": traced}


def _verify(
    plan: Plan,
    context: RankContext,
    settings: TrainSettings,
    batch: Batch,
    ran: _Ran,
    endpoints: RunEndpoints,
) -> dict[str, Any]:
    """Verify against a single process from the same start, fresh or checkpoint."""
    reference = Reference(
        plan,
        settings.seed,
        context.device,
        batch,
        TORCH_DTYPES[plan.workload.dtype.param],
        settings.adamw,
        last_step=settings.steps,
        weight_source=endpoints.weight_source,
    )
    continue_reference(reference, ran.begun_at, settings.checkpoint.new_stage)
    verification = verify(plan, reference, [step.loss for step in ran.steps], ran.gradients)
    verification.check()
    return verification_document(verification)
